"""What the turn loop and the model providers say to each other: requests, events of a reply, errors.

Nothing here knows a provider's wire format, and importing it loads no provider library.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

FinishReason = Literal["stop", "tool_calls", "length", "content_filter", "error", "unknown"]


class SignIn(Protocol):
    """A sign-in to a subscription: the access token in use, which changes while the sign-in is kept fresh."""

    @property
    def token(self) -> str:
        """The access token."""
        ...

    @property
    def account(self) -> str:
        """The account at the provider that the token is for."""
        ...

    async def renew(self, refused: str, *, last: bool) -> None:
        """Put another token in the place of `refused`, which the provider answered with 401.

        `last`: `refused` was itself given in place of a refused one, so the sign-in is worth nothing. Raises
        `ConfigError` (401) when the user has to sign in again, and `ProviderError`.
        """
        ...


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """One model as an agent uses it, with the credentials of its provider.

    `base_url` and `api_key` may be empty. `reasoning_level` is the chosen level, None when unset. `model_defaults` are
    merged over the request payload, last, whatever keys they have (runtime.md section 2). With a `sign_in` the model is
    used under the user's subscription, and there is no key.
    """

    provider_name: str
    provider_type: str
    model: str
    base_url: str = ""
    api_key: str = field(default="", repr=False)
    reasoning_level: str | None = None
    model_defaults: Mapping[str, Any] = field(default_factory=dict)
    sign_in: SignIn | None = field(default=None, repr=False)

    @property
    def credential(self) -> str:
        """What requests are authorized with: the key, or the token in use."""
        return self.api_key if self.sign_in is None else self.sign_in.token


@dataclass(frozen=True, slots=True)
class TextPart:
    """Text of a message."""

    text: str


@dataclass(frozen=True, slots=True)
class ImagePart:
    """An image of a user message: its bytes and MIME type."""

    data: bytes = field(repr=False)
    mime: str


@dataclass(frozen=True, slots=True)
class ToolCallPart:
    """A tool call of the assistant. `arguments` is the decoded object, or the raw text when it is not a JSON object."""

    id: str
    name: str
    arguments: dict[str, Any] | str


@dataclass(frozen=True, slots=True)
class UserMessage:
    """What the user side says: text and images, in order."""

    parts: Sequence[TextPart | ImagePart]


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """What the assistant said: text and tool calls, in order.

    `native` is `ReplyDone.native` of the reply this message came from, kept in memory by the loop for the requests of
    the same turn: it carries what a provider wants back unchanged (thinking signatures, reasoning items). A message
    replayed from the transcript has none.
    """

    parts: Sequence[TextPart | ToolCallPart]
    native: object | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class ToolResultMessage:
    """The result of one tool call, as text."""

    tool_call_id: str
    name: str
    text: str
    is_error: bool = False


Message = UserMessage | AssistantMessage | ToolResultMessage


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool offered to the model; `input_schema` is a JSON Schema of type object."""

    name: str
    description: str
    input_schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one reply. `input` does not count cached tokens; `total` is the sum of the four."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0

    @property
    def total(self) -> int:
        """Sum of all four."""
        return self.input + self.output + self.cache_read + self.cache_write


@dataclass(frozen=True, slots=True)
class TextDelta:
    """The next piece of the reply's text, never empty."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallReady:
    """A complete tool call, reported in provider order before `ReplyDone`."""

    call: ToolCallPart


@dataclass(frozen=True, slots=True)
class ReplyDone:
    """The end of a reply, always the last event of a stream that did not raise."""

    text: str
    tool_calls: list[ToolCallPart]
    usage: Usage
    finish: FinishReason
    native: object | None = field(default=None, repr=False, compare=False)


ReplyEvent = TextDelta | ToolCallReady | ReplyDone


class ProviderError(Exception):
    """A provider refused, broke off or could not be reached; carries the provider's own message.

    `status` is its HTTP status (None when there was none), `retry_after_s` what it asked to wait, in seconds.
    """

    def __init__(
        self, message: str, *, retryable: bool = False, status: int | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.retryable = retryable
        self.status = status
        self.retry_after_s = retry_after_s


class ConfigError(Exception):
    """The provider's configuration cannot be used: unknown type, no key, no base URL (HTTP 400), no sign-in (401)."""

    def __init__(self, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
