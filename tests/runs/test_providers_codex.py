"""Requests under a ChatGPT subscription: what leaves for its backend, and what happens when the sign-in is refused."""

import asyncio
import base64
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from libs.egress import EgressPolicy
from services.runs.providers import (
    AssistantMessage,
    ConfigError,
    ImagePart,
    ModelConfig,
    ModelGateway,
    ProviderError,
    ReplyDone,
    TextPart,
    ToolCallPart,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from services.runs.providers.endpoint import endpoint_of
from tests.support.gateways import HELLO, READ, ask, urls_of
from tests.support.providers import Answer, ProviderServer, Received, Refuse, Say

PATH = "/backend-api/codex/responses"
EXPIRED = "sign in again"


@dataclass
class FakeSignIn:
    """Gives `tokens` one after the other; after the last one the user has to sign in again."""

    tokens: list[str]
    account: str = "acc-7"
    asked: list[tuple[str, bool]] = field(default_factory=list)

    @property
    def token(self) -> str:
        return self.tokens[0]

    async def renew(self, refused: str, *, last: bool) -> None:
        self.asked.append((refused, last))
        if last or len(self.tokens) == 1:
            raise ConfigError(EXPIRED, status=401)
        if self.tokens[0] == refused:
            self.tokens.pop(0)


def config(*tokens: str, **more: Any) -> tuple[ModelConfig, FakeSignIn]:
    sign_in = FakeSignIn(list(tokens))
    return ModelConfig("p", "openai", "gpt-5.6-terra", sign_in=sign_in, **more), sign_in


@pytest.fixture
async def server() -> AsyncIterator[ProviderServer]:
    async with ProviderServer() as running:
        yield running


@pytest.fixture
async def gateway(server: ProviderServer) -> AsyncIterator[ModelGateway]:
    gateway = ModelGateway(
        vendor_urls={**urls_of(server), "chatgpt": f"{server.root}/backend-api/codex"},
        policy=EgressPolicy(),
        sleep=lambda _: asyncio.sleep(0),
    )
    yield gateway
    await gateway.aclose()


def only(*good: str) -> Any:
    """Answers these tokens, refuses all others."""

    def answer(seen: Received) -> Answer:
        token = seen.headers["authorization"].removeprefix("Bearer ")
        return Say([f"with {token}"]) if token in good else Refuse(401, f"bad token {token}")

    return answer


async def test_what_the_backend_is_sent(server: ProviderServer, gateway: ModelGateway) -> None:
    spoken = [
        UserMessage([TextPart("look"), ImagePart(b"\x89PNG", "image/png")]),
        AssistantMessage([TextPart("ok"), ToolCallPart("call_1", "read", {"address": "a"})]),
        ToolResultMessage("call_1", "read", "found"),
        UserMessage([TextPart("more")]),
    ]
    asked, _ = config("t-1", model_defaults={"text": {"verbosity": "low"}}, reasoning_level="high")
    await ask(gateway, asked, spoken, [READ])
    request = server.received[0]
    assert request.path == PATH and request.headers["authorization"] == "Bearer t-1"
    assert request.headers["chatgpt-account-id"] == "acc-7" and request.headers["originator"] == "pi"
    assert request.headers["openai-beta"] == "responses=experimental"
    assert request.headers["session-id"] == request.body["prompt_cache_key"]
    body = request.body
    assert body["instructions"] == "Be brief." and body["model"] == "gpt-5.6-terra"
    assert body["store"] is False and body["stream"] is True and body["reasoning"]["effort"] == "high"
    assert "reasoning.encrypted_content" in body["include"] and body["text"] == {"verbosity": "low"}
    assert not {"temperature", "max_output_tokens", "top_p", "previous_response_id"} & body.keys()
    items = body["input"]
    assert [item.get("role", item.get("type")) for item in items] == [
        "user",
        "assistant",
        "function_call",
        "function_call_output",
        "user",
    ]
    image = base64.b64encode(b"\x89PNG").decode()
    assert items[0]["content"][1]["image_url"] == f"data:image/png;base64,{image}"
    assert items[2]["call_id"] == items[3]["call_id"] == "call_1" and items[3]["output"] == "found"
    assert body["tools"][0]["parameters"] == READ.input_schema and body["tools"][0]["strict"] is False


async def test_requests_of_a_conversation_share_its_cache(server: ProviderServer, gateway: ModelGateway) -> None:
    asked, _ = config("t")
    longer = [*HELLO, AssistantMessage([TextPart("Hello.")]), UserMessage([TextPart("and?")])]
    for messages in (HELLO, longer, [UserMessage([TextPart("another")])]):
        await ask(gateway, asked, messages)
    first, second, other = [request.body["prompt_cache_key"] for request in server.received]
    assert first == second != other


async def test_a_reply_is_read_as_on_the_other_responses_path(server: ProviderServer, gateway: ModelGateway) -> None:
    server.reply = Say(["Hal", "lo"], [("read", {"address": "x"})], thinking="hm", cache_read=7)
    asked, _ = config("t")
    events = await ask(gateway, asked, tools=[READ])
    done = events[-1]
    assert isinstance(done, ReplyDone) and (done.text, done.finish) == ("Hallo", "tool_calls")
    assert [(call.name, call.arguments) for call in done.tool_calls] == [("read", {"address": "x"})]
    assert done.usage == Usage(input=10, output=5, cache_read=7)
    # The reasoning goes back sealed as it came.
    answered = [
        *HELLO,
        AssistantMessage([TextPart("Hallo"), *done.tool_calls], native=done.native),
        ToolResultMessage(done.tool_calls[0].id, "read", "found"),
    ]
    await ask(gateway, asked, answered, [READ])
    kept = [item for item in server.received[-1].body["input"] if item.get("type") == "reasoning"]
    assert [item["encrypted_content"] for item in kept] == ["sealed"]


@pytest.mark.parametrize(("level", "effort"), [(None, "none"), ("low", "low"), ("xhigh", "xhigh")])
async def test_the_level_is_said(server: ProviderServer, gateway: ModelGateway, level: str | None, effort: str) -> None:
    asked, _ = config("t", reasoning_level=level)
    await ask(gateway, asked)
    assert server.received[0].body["reasoning"]["effort"] == effort


async def test_a_refused_token_is_renewed_once_and_the_request_sent_again(
    server: ProviderServer, gateway: ModelGateway
) -> None:
    server.reply = only("t-2")
    asked, sign_in = config("t-1", "t-2")
    assert (await ask(gateway, asked))[-1].text == "with t-2"
    assert sign_in.asked == [("t-1", False)] and len(server.received) == 2
    assert server.received[0].body == server.received[1].body
    # What follows in the turn begins with the good one.
    await ask(gateway, asked)
    assert len(server.received) == 3


async def test_a_renewed_token_that_is_refused_ends_it(server: ProviderServer, gateway: ModelGateway) -> None:
    server.reply = only()
    asked, sign_in = config("t-1", "t-2", "t-3")
    with pytest.raises(ConfigError) as raised:
        await ask(gateway, asked)
    assert (raised.value.message, raised.value.status) == (EXPIRED, 401)
    assert sign_in.asked == [("t-1", False), ("t-2", True)] and len(server.received) == 2


async def test_refusals_of_other_sorts_renew_nothing(server: ProviderServer, gateway: ModelGateway) -> None:
    asked, sign_in = config("t-secret-1", "t-2")
    server.reply = Refuse(400, "The model is not supported, t-secret-1")
    with pytest.raises(ProviderError) as raised:
        await ask(gateway, asked)
    assert (raised.value.message, raised.value.status) == ("The model is not supported, ***", 400)
    assert sign_in.asked == []


def test_a_sign_in_goes_to_its_backend_and_nowhere_else() -> None:
    asked, _ = config("t")
    for elsewhere in (asked, replace(asked, base_url="https://mine.example/v1", api_key="k")):
        endpoint = endpoint_of(elsewhere, {"openai": "https://api.openai.com/v1"})
        assert endpoint.base_url == "https://chatgpt.com/backend-api/codex" and not endpoint.chosen_by_user
    assert endpoint_of(asked, {"chatgpt": "http://127.0.0.1:1/x/"}).base_url == "http://127.0.0.1:1/x"
    assert "t-9" not in repr(replace(asked, sign_in=FakeSignIn(["t-9"])))
