"""Everything a provider can do wrong, in every wire format."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from libs.egress import EgressPolicy
from services.runs.providers import ConfigError, ModelConfig, ModelGateway, ProviderError, TextDelta
from services.runs.providers.errors import retry_after_seconds
from tests.support.gateways import CONFIGS, FORMATS, HELLO, ask, gateway_to
from tests.support.providers import Answer, HangUp, ProviderServer, Refuse, Say


@pytest.fixture
async def server() -> AsyncIterator[ProviderServer]:
    async with ProviderServer() as running:
        yield running


@pytest.fixture
def waits() -> list[float]:
    return []


@pytest.fixture
async def gateway(server: ProviderServer, waits: list[float]) -> AsyncIterator[ModelGateway]:
    async with gateway_to(server, waits) as made:
        yield made


async def failure(gateway: ModelGateway, config: ModelConfig) -> ProviderError:
    with pytest.raises(ProviderError) as raised:
        await ask(gateway, config)
    return raised.value


@FORMATS
@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
async def test_a_refusal_is_final_and_says_why(
    server: ProviderServer, gateway: ModelGateway, config: ModelConfig, status: int
) -> None:
    server.reply = Refuse(status)
    error = await failure(gateway, config)
    assert (error.message, error.status, error.retryable) == ("boom", status, False)
    assert str(error) == "boom" and len(server.received) == 1


@FORMATS
@pytest.mark.parametrize("status", [408, 409, 429, 500, 503, 529])
async def test_an_outage_is_tried_three_times(
    server: ProviderServer, gateway: ModelGateway, config: ModelConfig, status: int, waits: list[float]
) -> None:
    server.reply = Refuse(status)
    error = await failure(gateway, config)
    assert (error.message, error.status, error.retryable) == ("boom", status, True)
    assert len(server.received) == 3 and len(waits) == 2 and 0 < waits[0] < waits[1] < 2


@FORMATS
async def test_the_third_attempt_may_succeed(
    server: ProviderServer, gateway: ModelGateway, config: ModelConfig
) -> None:
    server.script = [Refuse(503), HangUp()]
    assert (await ask(gateway, config))[-1].text == "Hello."
    assert len(server.received) == 3 and server.received[0].body == server.received[2].body


@pytest.mark.parametrize(("header", "expected"), [("3", 3.0), ("0.25", 0.25), ("600", 10.0), ("-1", 0.0)])
async def test_retry_after_is_obeyed_up_to_ten_seconds(
    server: ProviderServer, gateway: ModelGateway, waits: list[float], header: str, expected: float
) -> None:
    server.reply = Refuse(429, headers={"retry-after": header})
    error = await failure(gateway, CONFIGS["chat"])
    assert waits == [expected, expected] and error.retry_after_s == max(0.0, float(header))


def test_retry_after_as_a_date() -> None:
    from datetime import UTC, datetime

    now = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
    assert retry_after_seconds("Thu, 01 Jan 2026 12:00:07 GMT", now) == 7.0
    assert retry_after_seconds("Thu, 01 Jan 2026 11:00:00 GMT", now) == 0.0
    assert retry_after_seconds("soon", now) is None and retry_after_seconds(None, now) is None


@FORMATS
@pytest.mark.parametrize("answer", [Say(["one", "two"], torn=True), Say(["one", "two"], ends_early=True)])
async def test_a_reply_that_breaks_off(
    server: ProviderServer, gateway: ModelGateway, config: ModelConfig, answer: Answer
) -> None:
    server.reply = answer
    seen = []
    with pytest.raises(ProviderError, match="Model provider broke off its reply") as raised:
        async with gateway.stream(config, "", HELLO, []) as reply:
            async for event in reply:
                seen.append(event)  # noqa: PERF401 - what came before the error is asserted
    assert seen == [TextDelta("one")] and raised.value.retryable and len(server.received) == 1


@FORMATS
async def test_an_error_inside_the_stream(server: ProviderServer, gateway: ModelGateway, config: ModelConfig) -> None:
    server.reply = Say(["one"], error_inside="boom inside")
    assert "boom inside" in (await failure(gateway, config)).message


@FORMATS
async def test_an_empty_body_is_no_reply(server: ProviderServer, gateway: ModelGateway, config: ModelConfig) -> None:
    from tests.support.providers import Frames

    server.reply = Frames([])
    assert (await failure(gateway, config)).message


@FORMATS
async def test_hanging_up_without_an_answer(server: ProviderServer, gateway: ModelGateway, config: ModelConfig) -> None:
    server.reply = HangUp()
    error = await failure(gateway, config)
    assert error.retryable and error.status is None and len(server.received) == 3


@FORMATS
async def test_nobody_listens(config: ModelConfig) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: refused at once
        port = taken.getsockname()[1]
        silent = ProviderServer()
        silent.port = port
        waits: list[float] = []
        async with gateway_to(silent, waits) as gateway:
            error = await failure(gateway, config)
    assert error.message == "Model provider could not be reached" and error.retryable and len(waits) == 2


@FORMATS
async def test_cancelling_while_waiting_for_the_next_attempt(server: ProviderServer, config: ModelConfig) -> None:
    waiting = asyncio.Event()

    async def forever(_: float) -> None:
        waiting.set()
        await asyncio.Event().wait()

    from tests.support.gateways import urls_of

    server.reply = Refuse(503)
    gateway = ModelGateway(vendor_urls=urls_of(server), sleep=forever)
    task = asyncio.create_task(ask(gateway, config))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await gateway.aclose()
    assert len(server.received) == 1


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('{"error": "boom"}', "boom"),
        ('{"message": " boom "}', "boom"),
        ('{"detail": [{"loc": [], "message": "boom"}]}', "boom"),
        ('[{"error": {"message": "boom"}}]', "boom"),
        ("boom: out of order", "boom: out of order"),
        ("<html>boom</html>", "Model provider answered HTTP 400"),
        ("", "Model provider answered HTTP 400"),
        ('{"error": null}', '{"error": null}'),
        ('{"error": {"message": "bad key sk-secret"}}', "bad key ***"),
    ],
)
async def test_messages_of_all_shapes(server: ProviderServer, gateway: ModelGateway, body: str, message: str) -> None:
    server.reply = Refuse(400, body=body)
    assert (await failure(gateway, CONFIGS["chat"])).message == message


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (ModelConfig("p", "nonsense", "m", api_key="k"), "Unsupported model provider type: nonsense"),
        (ModelConfig("p", "openai", "m"), "openai API key is not configured"),
        (ModelConfig("p", "anthropic", "m", base_url="http://x"), "anthropic API key is not configured"),
        (ModelConfig("p", "custom", "m"), "Base URL is required for provider type: custom"),
        (ModelConfig("p", "custom", "m", base_url=" / "), "Base URL is required for provider type: custom"),
        (ModelConfig("p", "custom", "m", base_url="ftp://example.com"), "Provider base URL is invalid"),
        (ModelConfig("p", "custom", "m", base_url="http:///v1"), "Provider base URL is invalid"),
        (ModelConfig("p", "custom", "m", base_url="example.com/v1"), "Provider base URL is invalid"),
    ],
)
async def test_unusable_configurations(gateway: ModelGateway, config: ModelConfig, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        await ask(gateway, config)
    assert raised.value.message == message


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "169.254.169.254"])
@pytest.mark.parametrize("kind", ["custom", "ollama"])
async def test_private_addresses_are_refused(
    server: ProviderServer, gateway: ModelGateway, kind: str, host: str
) -> None:
    config = ModelConfig("p", kind, "m", base_url=f"http://{host}:{server.port}/v1")
    with pytest.raises(ConfigError, match=r"^Provider base URL points to a private address$"):
        await ask(gateway, config)
    assert server.received == []


async def test_private_addresses_can_be_allowed(server: ProviderServer) -> None:
    config = ModelConfig("p", "custom", "m", base_url=f"{server.root}/v1")
    for policy in (EgressPolicy(allow_private=True), EgressPolicy(allowed_hosts=frozenset({"127.0.0.1"}))):
        async with gateway_to(server, policy=policy) as gateway:
            assert (await ask(gateway, config))[-1].text == "Hello."


async def test_an_operators_url_opens_nothing_for_users(server: ProviderServer, gateway: ModelGateway) -> None:
    assert (await ask(gateway, CONFIGS["chat"]))[-1].text == "Hello."
    with pytest.raises(ConfigError, match="private address"):
        await ask(gateway, ModelConfig("p", "custom", "m", base_url=f"{server.root}/v1"))


async def test_a_key_never_follows_a_stored_url(server: ProviderServer, gateway: ModelGateway) -> None:
    config = replace(CONFIGS["chat"], base_url="http://attacker.example/v1")
    assert (await ask(gateway, config))[-1].text == "Hello."
    assert server.received[0].headers["authorization"] == "Bearer sk-secret"


def test_importing_the_room_loads_no_provider_library() -> None:
    code = (
        "import sys, services.runs.providers\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('openai', 'anthropic', 'google', 'pydantic_ai')])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert out.stdout.strip() == "[]"
