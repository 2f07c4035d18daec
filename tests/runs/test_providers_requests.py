"""What leaves for a provider: paths, headers and payloads in every wire format."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from libs.egress import EgressPolicy
from services.runs.providers import (
    AssistantMessage,
    ImagePart,
    ModelConfig,
    ModelGateway,
    TextPart,
    ToolCallPart,
    ToolResultMessage,
    ToolSpec,
    UserMessage,
)
from tests.support.gateways import CONFIGS, FORMATS, HELLO, READ, ask, gateway_to
from tests.support.providers import ProviderServer, Received

CALL = ToolCallPart("call_1", "read", {"address": "a", "ü": 1})
CONVERSATION = [
    UserMessage([TextPart("look"), ImagePart(b"\x89PNG", "image/png")]),
    AssistantMessage([TextPart("ok"), CALL, ToolCallPart("call_2", "read", "not json")]),
    ToolResultMessage("call_1", "read", "found"),
    ToolResultMessage("call_2", "read", "bad thing", is_error=True),
    UserMessage([TextPart("more")]),
]
IMAGE = "iVBORw=="


@pytest.fixture
async def server() -> AsyncIterator[ProviderServer]:
    async with ProviderServer() as running:
        yield running


@pytest.fixture
async def gateway(server: ProviderServer) -> AsyncIterator[ModelGateway]:
    async with gateway_to(server, policy=EgressPolicy(allow_private=True)) as made:
        yield made


async def sent(server: ProviderServer, gateway: ModelGateway, config: ModelConfig, **more: Any) -> Received:
    await ask(gateway, config, **more)
    return server.received[-1]


async def test_chat_completions(server: ProviderServer, gateway: ModelGateway) -> None:
    request = await sent(server, gateway, CONFIGS["chat"], messages=CONVERSATION, tools=[READ])
    assert request.path == "/v1/chat/completions" and request.headers["authorization"] == "Bearer sk-secret"
    messages = request.body["messages"]
    assert messages[0] == {"role": "system", "content": "Be brief."}
    assert messages[1]["content"][0]["text"] == "look"
    assert messages[1]["content"][1]["image_url"]["url"] == f"data:image/png;base64,{IMAGE}"
    assert messages[2]["content"] == "ok"
    assert [json.loads(call["function"]["arguments"]) for call in messages[2]["tool_calls"]] == [CALL.arguments, {}]
    assert messages[3] == {"role": "tool", "tool_call_id": "call_1", "content": "found"}
    assert messages[4] == {"role": "tool", "tool_call_id": "call_2", "content": "bad thing"}
    assert messages[5:] == [{"role": "user", "content": "more"}]
    function = request.body["tools"][0]["function"]
    assert (function["name"], function["description"], function["parameters"]) == ("read", "Reads.", READ.input_schema)
    assert request.body["stream"] is True and request.body["stream_options"] == {"include_usage": True}
    assert set(request.body) == {"model", "messages", "tools", "tool_choice", "stream", "stream_options"}


async def test_responses(server: ProviderServer, gateway: ModelGateway) -> None:
    request = await sent(server, gateway, CONFIGS["responses"], messages=CONVERSATION, tools=[READ])
    assert request.path == "/v1/responses" and request.headers["authorization"] == "Bearer sk-secret"
    items = request.body["input"]
    assert items[0] == {"role": "system", "content": "Be brief."}
    assert [part["type"] for part in items[1]["content"]] == ["input_text", "input_image"]
    assert [(item["type"], item["call_id"]) for item in items if "call_id" in item] == [
        ("function_call", "call_1"),
        ("function_call", "call_2"),
        ("function_call_output", "call_1"),
        ("function_call_output", "call_2"),
    ]
    assert items[-1] == {"role": "user", "content": "more"}
    assert request.body["reasoning"] == {"effort": "high"} and request.body["store"] is False
    assert request.body["tools"][0]["parameters"] == READ.input_schema and request.body["tools"][0]["strict"] is False


async def test_messages(server: ProviderServer, gateway: ModelGateway) -> None:
    request = await sent(server, gateway, CONFIGS["messages"], messages=CONVERSATION, tools=[READ])
    assert request.path == "/v1/messages" and "anthropic-version" in request.headers
    assert "sk-secret" in request.headers.get("x-api-key", "") + request.headers.get("authorization", "")
    assert [block["text"] for block in request.body["system"]] == ["Be brief."]
    user, assistant, results = request.body["messages"]
    assert [block["type"] for block in user["content"]] == ["text", "image"]
    assert user["content"][1]["source"] == {"type": "base64", "media_type": "image/png", "data": IMAGE}
    assert [block.get("input") for block in assistant["content"]] == [None, CALL.arguments, {}]
    assert [block.get("is_error") for block in results["content"]] == [False, True, None]
    assert results["content"][-1]["text"] == "more"
    assert request.body["tools"][0]["input_schema"] == READ.input_schema
    assert request.body["max_tokens"] == 16384 and "thinking" not in request.body


async def test_generate_content(server: ProviderServer, gateway: ModelGateway) -> None:
    request = await sent(server, gateway, CONFIGS["google"], messages=CONVERSATION, tools=[READ])
    assert request.path == "/v1beta/models/gemini-2.5-flash:streamGenerateContent" and request.query == {"alt": "sse"}
    assert request.headers["x-goog-api-key"] == "sk-secret"
    assert request.body["systemInstruction"]["parts"] == [{"text": "Be brief."}]
    roles = [content["role"] for content in request.body["contents"]]
    assert roles[:3] == ["user", "model", "user"]
    results = [part["functionResponse"] for part in request.body["contents"][2]["parts"] if "functionResponse" in part]
    assert [(result["name"], list(result["response"])) for result in results][1] == ("read", ["error"])
    assert "found" in json.dumps(results[0]) and "bad thing" in json.dumps(results[1])
    assert request.body["tools"][0]["functionDeclarations"][0]["name"] == "read"


@FORMATS
async def test_without_system_prompt_and_tools(
    server: ProviderServer, gateway: ModelGateway, config: ModelConfig
) -> None:
    request = await sent(server, gateway, config, system="")
    assert not request.body.get("tools") and "tool_choice" not in request.body
    assert not request.body.get("system") and "systemInstruction" not in request.body
    assert '"system"' not in json.dumps(request.body.get("messages", request.body.get("input", [])))


@pytest.mark.parametrize(
    ("model", "level", "path", "effort"),
    [
        ("gpt-4o", None, "/v1/chat/completions", None),
        ("gpt-5", None, "/v1/chat/completions", None),
        ("o3", None, "/v1/chat/completions", None),
        ("gpt-5-chat-latest", None, "/v1/chat/completions", None),
        ("gpt-5", "minimal", "/v1/responses", "minimal"),
        ("o4-mini", "high", "/v1/responses", "high"),
        ("gpt-5.1", None, "/v1/responses", "none"),
        ("gpt-5.6-codex", None, "/v1/responses", "none"),
        ("gpt-5.6-codex", "xhigh", "/v1/responses", "xhigh"),
        ("gpt-6", "xhigh", "/v1/responses", "xhigh"),
    ],
)
async def test_openai_models_that_reason_use_responses(
    server: ProviderServer, gateway: ModelGateway, model: str, level: str | None, path: str, effort: str | None
) -> None:
    request = await sent(server, gateway, replace(CONFIGS["responses"], model=model, reasoning_level=level))
    assert request.path == path and request.body["model"] == model
    assert request.body.get("reasoning", {}).get("effort") == effort and "reasoning_effort" not in request.body


@pytest.mark.parametrize("kind", ["custom", "ollama"])
async def test_a_compatible_server_may_use_any_model_name(
    server: ProviderServer, gateway: ModelGateway, kind: str
) -> None:
    config = ModelConfig("p", kind, "gpt-5.6", base_url=f" {server.root}/v1// ", reasoning_level=None)
    request = await sent(server, gateway, config)
    assert request.path == "/v1/chat/completions" and "reasoning" not in request.body
    assert request.body["messages"][0]["role"] == "system" and "sk-" not in request.headers["authorization"]


@pytest.mark.parametrize(
    ("model", "level", "thinking"),
    [
        ("claude-3-7-sonnet-latest", None, None),
        ("claude-3-7-sonnet-latest", "minimal", {"type": "enabled", "budget_tokens": 1024}),
        ("claude-sonnet-4-0", "high", {"type": "enabled", "budget_tokens": 16384}),
        ("claude-opus-4-6", "high", {"type": "adaptive"}),
    ],
)
async def test_claude_thinks_when_a_level_is_set(
    server: ProviderServer, gateway: ModelGateway, model: str, level: str | None, thinking: object
) -> None:
    request = await sent(server, gateway, replace(CONFIGS["messages"], model=model, reasoning_level=level))
    assert request.body.get("thinking") == thinking
    budget = request.body.get("thinking", {}).get("budget_tokens", 0)
    assert request.body["max_tokens"] > budget


async def test_claude_does_not_think_about_calls_whose_thinking_is_lost(
    server: ProviderServer, gateway: ModelGateway
) -> None:
    config = replace(CONFIGS["messages"], reasoning_level="low")
    answered = [*HELLO, AssistantMessage([CALL]), ToolResultMessage("call_1", "read", "found")]
    assert "thinking" not in (await sent(server, gateway, config, messages=answered)).body
    later = [*answered, AssistantMessage([TextPart("So.")]), *HELLO]
    assert (await sent(server, gateway, config, messages=later)).body["thinking"]["type"] == "enabled"
    adaptive = replace(config, model="claude-opus-4-6")
    assert (await sent(server, gateway, adaptive, messages=answered)).body["thinking"] == {"type": "adaptive"}


@pytest.mark.parametrize(
    ("model", "level", "thinking"),
    [
        ("gemini-2.0-flash", None, {}),
        ("gemini-2.5-flash", None, {"thinkingBudget": 0}),
        ("gemini-2.5-pro", None, {}),
        ("gemini-2.5-pro", "low", {"thinkingBudget": 2048}),
        ("gemini-3-pro-preview", None, {}),
        ("gemini-3-pro-preview", "medium", {"thinkingLevel": "MEDIUM"}),
        ("gemini-3-pro-preview", "minimal", {"thinkingLevel": "MINIMAL"}),
    ],
)
async def test_gemini_thinks_as_told(
    server: ProviderServer, gateway: ModelGateway, model: str, level: str | None, thinking: dict[str, Any]
) -> None:
    request = await sent(server, gateway, replace(CONFIGS["google"], model=model, reasoning_level=level))
    found = request.body.get("generationConfig", {}).get("thinkingConfig", {})
    camel = {"thinking_budget": "thinkingBudget", "thinking_level": "thinkingLevel"}
    named = {
        camel.get(key, key): value for key, value in found.items() if key not in ("include_thoughts", "includeThoughts")
    }
    assert named == thinking


@FORMATS
async def test_model_defaults_are_merged_last_whatever_they_are(
    server: ProviderServer, gateway: ModelGateway, config: ModelConfig
) -> None:
    defaults = {
        "temperature": 0.25,
        "max_tokens": 77,
        "model": "another",
        "reasoning": {"effort": "low"},
        "extra_field": {"a": [1, None, "ü"]},
        "generationConfig": {"topK": 3},
    }
    plain = (await sent(server, gateway, config)).body
    merged = (await sent(server, gateway, replace(config, model_defaults=defaults))).body
    assert merged == {**plain, **defaults}


async def test_tools_keep_their_order_and_schemas(server: ProviderServer, gateway: ModelGateway) -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "T",
        "type": "object",
        "properties": {"a": {"type": ["string", "null"], "default": None, "title": "A"}},
        "additionalProperties": False,
    }
    tools = [ToolSpec(f"tool_{n}", "", schema) for n in (3, 1, 2)]
    for name in ("chat", "responses"):
        request = await sent(server, gateway, CONFIGS[name], tools=tools)
        found = [tool.get("function", tool) for tool in request.body["tools"]]
        assert [tool["name"] for tool in found] == ["tool_3", "tool_1", "tool_2"]
        assert all(tool["parameters"] == schema for tool in found)


async def test_the_environment_of_the_process_is_not_sent(
    server: ProviderServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "OPENAI_API_KEY",
        "OPENAI_ORG_ID",
        "OPENAI_PROJECT_ID",
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "GOOGLE_API_KEY",
    ):
        monkeypatch.setenv(name, "leaked")
    for name in ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://leaked.invalid")
    async with gateway_to(server, policy=EgressPolicy(allow_private=True)) as gateway:
        custom = ModelConfig("p", "custom", "m", base_url=f"{server.root}/v1")
        for config in (custom, *CONFIGS.values()):
            assert "leaked" not in json.dumps((await sent(server, gateway, config)).headers)
