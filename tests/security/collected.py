"""What the tests of this run handed to the system, collected where their clients sign and scripted models speak."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from libs.client import Client, Signer
from libs.stack.scripted import Calls, Say, ScriptedProvider
from tests.security.markers import Marker

SECRET_TOKEN = "zS3cr3tOfTestz"
"""Stands in every secret that the tests' shared helpers hand out: one search finds them all, in whatever number."""
_LEAST_BYTES = 12
"""Shorter values are also met by chance."""
_MOST = 48


def secret(name: str) -> bytes:
    """A secret value that can be told from everything else."""
    return f"sk-{name}-{SECRET_TOKEN}".encode()


class Collected:
    """Secrets and texts, no more than `_MOST` of either between two calls of `take`."""

    def __init__(self) -> None:
        self._secrets: dict[bytes, str] = {}
        self._texts: dict[bytes, str] = {}

    def secret(self, name: str, value: Any) -> None:
        """Note a secret."""
        _note(self._secrets, name, value)

    def text(self, name: str, value: Any) -> None:
        """Note what somebody wrote."""
        _note(self._texts, name, value)

    def take(self) -> tuple[list[Marker], list[Marker]]:
        """Secrets and texts so far. Both stay: another system may have been given them too."""
        fixed = Marker("a secret of the tests", SECRET_TOKEN.encode())
        return [fixed, *_markers(self._secrets)], _markers(self._texts)

    def action(self, action: Mapping[str, Any]) -> None:
        """Note what an action hands over."""
        kind = action.get("_")
        match kind:
            case "SetSecret":
                self.secret("a stored secret", action.get("value"))
            case "ImportSigningIdentity":
                self.secret("a signing seed", action.get("seed"))
            case "SubmitProviderOAuthCode":
                self.secret("an authorization code", action.get("code"))
            case "MessageSession":
                content = action.get("content")
                for part in content if isinstance(content, list) else ():
                    if isinstance(part, Mapping):
                        self.text("a message", part.get("text"))
            case "CreateAgent" | "UpdateAgent":
                definition = action.get("definition")
                if isinstance(definition, Mapping):
                    self.text("a prompt", definition.get("systemPrompt"))
            case "UploadSessionAttachment" | "WriteAgentMemoryFile" | "AppendFileUploadChunk":
                self.text("a file", action.get("content"))
            case "CreateAgentTrigger" | "UpdateAgentTrigger":
                trigger = action.get("trigger", action.get("patch"))
                if isinstance(trigger, Mapping):
                    self._values("a trigger's prompt", trigger.get("prompt"))
            case "InvokeSessionTool":
                self._values("a tool's input", action.get("input"))

    def reply(self, reply: Say | Calls) -> None:
        """Note what a scripted model says."""
        if isinstance(reply, Say):
            for chunk in reply.chunks:
                self.text("a reply", chunk)
        else:
            self.text("a reply", reply.before)
            for _, arguments in reply.calls:
                self._values("a tool's input", arguments)

    def _values(self, name: str, value: Any) -> None:
        if isinstance(value, str):
            self.text(name, value)
        elif isinstance(value, Mapping):
            for inner in value.values():
                self._values(name, inner)
        elif isinstance(value, list):
            for inner in value:
                self._values(name, inner)

    def listen(self) -> Callable[[], None]:
        """Collect from all clients and scripted models of this process; returns what ends it."""
        sign, stream, send = Signer.sign, ScriptedProvider._stream, Client.send_envelope

        def signing(signer: Signer, action: Mapping[str, Any], account: bytes) -> bytes:
            self.secret("an account's seed", signer.key.seed)
            self.action(action)
            return sign(signer, action, account)

        async def streaming(provider: ScriptedProvider, request: Any, answer: Say | Calls) -> Any:
            self.reply(answer)
            for message in provider.requests[-1].get("messages", ()) if provider.requests else ():
                if message.get("role") == "tool":
                    self.text("a tool's output", message.get("content"))
            return await stream(provider, request, answer)

        async def sending(client: Client, envelope: bytes, **options: Any) -> Any:
            answer = await send(client, envelope, **options)
            self.secret("a webhook's secret", answer.get("webhookSecret"))
            return answer

        Signer.sign, ScriptedProvider._stream, Client.send_envelope = signing, streaming, sending

        def end() -> None:
            Signer.sign, ScriptedProvider._stream, Client.send_envelope = sign, stream, send

        return end


def _note(known: dict[bytes, str], name: str, value: Any) -> None:
    data = value.encode() if isinstance(value, str) else value
    if not isinstance(data, bytes) or len(data) < _LEAST_BYTES or len(set(data)) < 6:
        return
    # Long values are known by their beginning; the oldest ones make room.
    known.setdefault(data[:256], name)
    if len(known) > _MOST:
        del known[next(iter(known))]


def _markers(known: dict[bytes, str]) -> list[Marker]:
    return [Marker(name, value) for value, name in known.items()]
