"""How each rule of the table is put as a request. Only what succeeds changes anything, and that is made for it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from libs.client import Key
from libs.wire import sign_capability
from tests.authorization.scenes import CHAT, Holdings, Place, Scene, identity, provider, sign_in, trigger
from tests.authorization.table import OK, Rule, Who, Whose, expected
from tests.support.kit import NOWHERE, text

FILE = b"some bytes"


class Asked:
    """One cell: the scene's account asks for a rule with what is own, another's or deleted."""

    def __init__(self, scene: Scene, rule: Rule, whose: Whose, foreign: Place, others: Holdings) -> None:
        self.scene, self.whose, self._others = scene, whose, others
        self.place = {Whose.OWN: scene.own, Whose.FOREIGN: foreign, Whose.DELETED: scene.deleted}[whose]
        self.happens = expected(rule, scene.who, whose) == OK

    def held(self) -> Holdings:
        """What another has, or what was deleted, by name."""
        return self._others if self.whose is Whose.FOREIGN else self.scene.gone


Fields = dict[str, Any]
Build = Callable[[Asked], Awaitable[Fields]]


def _with(read: Callable[[Asked], Fields]) -> Build:
    async def build(asked: Asked) -> Fields:
        return read(asked)

    return build


def _agent(**more: Any) -> Build:
    return _with(lambda asked: {"agentId": asked.place.agent, **more})


def _session(**more: Any) -> Build:
    return _with(lambda asked: {"sessionId": asked.place.session, **more})


def _run(**more: Any) -> Build:
    return _with(lambda asked: {"runId": asked.place.run, **more})


def _nothing(**fields: Any) -> Build:
    return _with(lambda _: fields)


async def _create_agent(asked: Asked) -> Fields:
    if asked.happens and asked.scene.client.account != asked.scene.owner.account:
        await asked.scene.client.send({"_": "SetModelProvider", "name": "mine", "provider": {"type": "ollama"}})
    name = "scripted" if asked.scene.client.account == asked.scene.owner.account else "mine"
    return {"definition": {"name": "Made", "systemPrompt": "Be.", "modelProvider": name, "model": "m"}}


async def _update_agent(asked: Asked) -> Fields:
    definition = {"name": "Same", "systemPrompt": "Be.", "modelProvider": "scripted", "model": "m"}
    return {"agentId": asked.place.agent, "definition": definition}


async def _spare_agent(asked: Asked) -> Fields:
    return {"agentId": await asked.scene.another() if asked.happens else asked.place.agent}


async def _spare_session(asked: Asked) -> Fields:
    made = await asked.scene.owner.create_session(asked.place.agent) if asked.happens else asked.place.session
    return {"sessionId": made}


async def _remove_member(asked: Asked) -> Fields:
    account = Key.generate().id
    if asked.happens:
        await asked.scene.owner.call(
            "InviteAgentCollaborator", agentId=asked.place.agent, accountId=account, role="reader"
        )
    return {"agentId": asked.place.agent, "accountId": account}


def _as_it_is(key: str, *, public: tuple[Who, ...]) -> Build:
    return _with(lambda asked: {"agentId": asked.place.agent, key: asked.scene.who in public})


async def _attachment(asked: Asked) -> Fields:
    owner = asked.place.owner.client
    if asked.whose is Whose.DELETED:
        return {"sessionId": asked.place.session, "attachmentId": "0" * 64}
    made = await owner.call("UploadSessionAttachment", sessionId=asked.place.session, name="a.txt", content=FILE)
    return {"sessionId": asked.place.session, "attachmentId": made.attachment.id}


def _target(place: Place, to_memory: bool = False) -> Fields:
    if to_memory:
        return {"kind": "memory", "agentId": place.agent, "path": "up.txt"}
    return {"kind": "session-attachment", "sessionId": place.session, "name": "a.txt", "mimeType": "text/plain"}


def _begin(to_memory: bool = False) -> Build:
    return _with(lambda asked: {"target": _target(asked.place, to_memory), "size": len(FILE)})


async def _upload(asked: Asked, to_memory: bool) -> str:
    if known := asked.place.uploads.get(to_memory):
        return known
    owner = asked.scene.owner if asked.whose is Whose.DELETED else asked.place.owner.client
    place = asked.scene.own if asked.whose is Whose.DELETED else asked.place
    begun = await owner.call("BeginFileUpload", target=_target(place, to_memory), size=len(FILE))
    if asked.whose is Whose.DELETED:
        await owner.call("AbortFileUpload", uploadId=begun.upload_id)
    elif asked.whose is Whose.FOREIGN:
        asked.place.uploads[to_memory] = begun.upload_id
    return begun.upload_id


def _append(to_memory: bool = False) -> Build:
    async def build(asked: Asked) -> Fields:
        return {"uploadId": await _upload(asked, to_memory), "offset": 0, "content": FILE}

    return build


def _commit(to_memory: bool = False) -> Build:
    async def build(asked: Asked) -> Fields:
        upload = await _upload(asked, to_memory)
        if asked.happens:
            await asked.scene.owner.call("AppendFileUploadChunk", uploadId=upload, offset=0, content=FILE)
        return {"uploadId": upload}

    return build


def _abort(to_memory: bool = False) -> Build:
    async def build(asked: Asked) -> Fields:
        return {"uploadId": await _upload(asked, to_memory)}

    return build


async def _memory_file(asked: Asked) -> Fields:
    if asked.happens:
        await asked.scene.owner.call("WriteAgentMemoryFile", agentId=asked.place.agent, path="a.txt", content=FILE)
    return {"agentId": asked.place.agent, "path": "a.txt"}


def _trigger(**more: Any) -> Build:
    return _with(lambda asked: {"triggerId": asked.place.trigger, **more})


async def _spare_trigger(asked: Asked) -> Fields:
    if not asked.happens:
        return {"triggerId": asked.place.trigger}
    return {"triggerId": (await trigger(asked.scene.owner, asked.place.agent)).id}


async def _two_triggers(asked: Asked) -> Fields:
    first = other = asked.place.trigger
    seen = [0, 0]
    if asked.happens:
        made = [await trigger(asked.scene.owner, asked.place.agent) for _ in range(2)]
        (first, other), seen = (t.id for t in made), [t.updated_at for t in made]
    return {
        "triggerId": first,
        "otherTriggerId": other,
        "expectedUpdatedAt": seen[0],
        "otherExpectedUpdatedAt": seen[1],
    }


async def _provider(asked: Asked) -> Fields:
    if asked.whose is not Whose.OWN:
        return {"name": asked.held().provider}
    if asked.happens:
        await asked.scene.client.send({"_": "SetModelProvider", "name": "spare", "provider": {"type": "ollama"}})
    return {"name": "spare"}


async def _models(asked: Asked) -> Fields:
    if asked.whose is not Whose.OWN:
        return {"provider": asked.held().provider}
    if asked.happens:
        await provider(asked.scene.client, "mine", asked.place.owner.provider.url)
    return {"provider": "mine"}


async def _identity(asked: Asked) -> Fields:
    if asked.whose is not Whose.OWN:
        return {"name": asked.held().identity}
    return {"name": await identity(asked.scene.client) if asked.happens else "hm-account-none"}


async def _labelled(asked: Asked) -> Fields:
    return {**await _identity(asked), "label": "Named"}


async def _login(asked: Asked) -> Fields:
    if asked.whose is Whose.FOREIGN:
        return {"loginId": asked.held().login}
    return {"loginId": await sign_in(asked.scene.client) if asked.happens else NOWHERE}


async def _code(asked: Asked) -> Fields:
    return {**await _login(asked), "code": "code#state"}


async def _capability(asked: Asked) -> Fields:
    """A stranger's, so that nobody gains a right on anything here."""
    delegate = asked.scene.client.signer.key if asked.whose is Whose.OWN else Key.generate()
    return {"capability": sign_capability(Key.generate(), delegate.principal, ts=int(time.time() * 1000))}


REQUESTS: dict[str, Build] = {
    "ListAgents": _nothing(),
    "CreateAgent": _create_agent,
    "GetAgent": _agent(),
    "UpdateAgent": _update_agent,
    "DeleteAgent": _spare_agent,
    "ListAgentInvites": _nothing(),
    "ListAgentCollaborators": _agent(),
    "InviteAgentCollaborator": _with(
        lambda asked: {"agentId": asked.place.agent, "accountId": Key.generate().id, "role": "reader"}
    ),
    "RemoveAgentCollaborator": _remove_member,
    "SetAgentPublicRead": _as_it_is("publicRead", public=(Who.PUBLIC, *CHAT)),
    "SetAgentPublicChat": _as_it_is("publicChat", public=CHAT),
    "AcceptAgentInvite": _spare_agent,
    "DeclineAgentInvite": _spare_agent,
    "CreateSession": _agent(),
    "ListSessions": _nothing(),
    "ListSessions (agentId)": _agent(),
    "ListSessions (parentSessionId)": _with(lambda asked: {"parentSessionId": asked.place.session}),
    "GetSession": _session(),
    "UpdateSession": _session(title="Renamed"),
    "DeleteSession": _spare_session,
    "MessageSession": _with(
        lambda asked: {
            "sessionId": asked.place.session,
            "content": text("again"),
            "clientMessageId": str(uuid.uuid4()),
        }
    ),
    "StopSession": _session(),
    "RetrySession": _session(),
    "InvokeSessionTool": _session(verb="read", input={"address": "~/self"}),
    "UploadSessionAttachment": _session(name="b.txt", content=FILE),
    "ReadSessionAttachment": _attachment,
    "BeginFileUpload (to a session)": _begin(),
    "AppendFileUploadChunk": _append(),
    "CommitFileUpload": _commit(),
    "AbortFileUpload": _abort(),
    "BeginFileUpload (to memory)": _begin(to_memory=True),
    "AppendFileUploadChunk (to memory)": _append(to_memory=True),
    "CommitFileUpload (to memory)": _commit(to_memory=True),
    "AbortFileUpload (to memory)": _abort(to_memory=True),
    "GetRun": _run(),
    "ListRuns (rootRunId)": _with(lambda asked: {"rootRunId": asked.place.run}),
    "ListRuns (sessionId)": _session(),
    "ListRuns (agentId)": _agent(),
    "CancelRun": _run(),
    "SignalRun": _run(signal="go"),
    "GetRunJournal": _run(),
    "ListAgentMemory": _agent(),
    "ReadAgentMemoryFile": _memory_file,
    "WriteAgentMemoryFile": _agent(path="b.txt", content=FILE),
    "DeleteAgentMemoryFile": _agent(path="b.txt"),
    "DownloadAgentMemoryFile": _agent(url="ftp://files.test/a"),
    "UploadAgentMemoryFileToIpfs": _memory_file,
    "ListAgentTools": _agent(),
    "SaveAgentTool": _with(
        lambda asked: {
            "agentId": asked.place.agent,
            "tool": {"name": f"t{uuid.uuid4().hex}", "description": "Is.", "input": {}, "source": "x"},
        }
    ),
    "DeleteAgentTool": _agent(name="none"),
    "ListAgentTriggers": _agent(),
    "GetAgentTrigger": _trigger(),
    "CreateAgentTrigger": _agent(trigger={"name": "T", "enabled": False, "prompt": "p", "source": {"type": "webhook"}}),
    "UpdateAgentTrigger": _trigger(patch={"name": "Renamed"}),
    "DeleteAgentTrigger": _spare_trigger,
    "CombineAgentTriggers": _two_triggers,
    "SetSecret": _nothing(name="another", value=b"value"),
    "SetModelProvider": _nothing(name="another", provider={"type": "ollama"}),
    "DeleteModelProvider": _provider,
    "ListModelProviders": _nothing(),
    "ListModelProviders (agentId)": _agent(),
    "ListProviderModels": _models,
    "ListProviderModels (agentId)": _agent(provider="scripted"),
    "StartProviderOAuth": _nothing(providerType="openai"),
    "SubmitProviderOAuthCode": _code,
    "GetProviderOAuthStatus": _login,
    "CancelProviderOAuth": _login,
    "ListSigningIdentities": _nothing(),
    "ListSigningIdentities (agentId)": _agent(),
    "CreateSigningIdentity": _nothing(label="Made"),
    "UpdateSigningIdentity": _labelled,
    "ImportSigningIdentity": _with(lambda _: {"seed": Key.generate().seed}),
    "DeleteSigningIdentity": _identity,
    "RegisterSigner": _capability,
    "Subscribe (account/…)": _with(
        lambda asked: {
            "key": "account/"
            + (asked.scene.client.account if asked.whose is Whose.OWN else asked.place.owner.client.account)
        }
    ),
    "Subscribe (agents/…)": _with(lambda asked: {"key": f"agents/{asked.place.agent}"}),
    "Subscribe (sessions/…)": _with(lambda asked: {"key": f"sessions/{asked.place.session}"}),
    "Subscribe (runs/…)": _with(lambda asked: {"key": f"runs/{asked.place.run}"}),
    "Subscribe (over HTTP)": _with(lambda asked: {"key": f"agents/{asked.place.agent}"}),
    "Unsubscribe (over HTTP)": _with(lambda asked: {"key": f"agents/{asked.place.agent}"}),
}
"""By `Rule.name`."""
