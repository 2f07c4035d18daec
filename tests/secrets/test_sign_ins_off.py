"""Sign-in to subscriptions while it is off."""

import uuid

import pytest

from tests.secrets.world import World

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_nothing_begins_whatever_the_type(world: World) -> None:
    c = world.account()
    for kind in ("openai", "anthropic", "", "x" * 300):
        text = "Subscription sign-in is not enabled on this server"
        await c.fails(403, text, "StartProviderOAuth", provider_type=kind)
    assert await world.sql("select 1 from provider_logins where account = $1", c.id) == []


async def test_unknown_sign_ins(world: World) -> None:
    c, nil = world.account(), str(uuid.UUID(int=0))
    for unknown in (nil, "a\0b"):
        text = "Sign-in not found" if unknown == nil else "Login id contains an invalid character"
        for method in ("GetProviderOAuthStatus", "CancelProviderOAuth"):
            await c.fails(404 if unknown == nil else 400, text, method, login_id=unknown)
        await c.fails(400, text, "SubmitProviderOAuthCode", login_id=unknown, code="x")
    for method, more in (
        ("GetProviderOAuthStatus", {}),
        ("CancelProviderOAuth", {}),
        ("SubmitProviderOAuthCode", {"code": "x"}),
    ):
        await c.fails(400, "Login id is required", method, login_id=" ", **more)
        await c.fails(400, "Login id is too large", method, login_id="é" * 128 + "x", **more)
    await c.fails(400, "Authorization code is required", "SubmitProviderOAuthCode", login_id=nil, code=" ")
    await c.fails(400, "Authorization code is too large", "SubmitProviderOAuthCode", login_id=nil, code="x" * 8193)
