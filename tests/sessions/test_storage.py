"""What all attachments of an account may have together."""

from __future__ import annotations

import pytest

from libs.errors import TooLarge
from libs.protocol.limits import GIB
from tests.sessions.files import append, begin, commit, upload
from tests.sessions.world import World

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_the_storage_of_an_account(world: World) -> None:
    c = world.account()
    agent_id = await c.agent()
    session_id, other = await c.session(agent_id), await c.session(agent_id)
    await world.sql(
        "INSERT INTO attachments (session_id, id, name, size, created_at, blob) VALUES ($1, $2, 'n', $3, 1, 'none')",
        other,
        "0" * 64,
        10 * GIB - 6,
    )
    try:
        await upload(c, session_id, b"abc")
        with pytest.raises(TooLarge, match=r"^Account storage is full$"):
            await upload(c, session_id, b"defg")
        with pytest.raises(TooLarge, match=r"^Account storage is full$"):
            await begin(c, session_id, 4)
        assert (await upload(c, session_id, b"abc")).size == 3, "known bytes are no addition"
        upload_id = await begin(c, session_id, 3)
        await append(c, upload_id, 0, b"xyz")
        assert (await commit(c, upload_id)).size == 3
        stranger = world.account()
        assert (await upload(stranger, await stranger.session(await stranger.agent()), b"defg")).size == 4
    finally:
        await world.sql("DELETE FROM attachments WHERE blob = 'none'")
