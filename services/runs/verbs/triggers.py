"""`~/triggers/`: what wakes the agent (triggers.md, section 10)."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from seed.triggers.v1 import triggers_pb2 as pb
from seed.triggers.v1 import triggers_pb2_grpc

from libs import wire
from libs.errors import NotFound
from libs.protocol.limits import TRIGGER_READ_FIRINGS
from libs.rpc import Peer
from services.runs.domain import triggers as rules
from services.runs.domain.addresses import Form, Reading, Writing, flag
from services.runs.domain.verbs import VerbError
from services.runs.verbs.contract import Actor, Output
from services.runs.verbs.tools import json_object
from services.runs.verbs.waiting import PATIENCE_S

_DRY_RUN_S = 60.0
"""Replaying the newest activity asks the feed for it."""


class Triggers:
    """Reads and writes triggers through the triggers service, for the owner of the agent."""

    form = Form(
        "~/triggers",
        "~/triggers/…",
        written="~/triggers/<name>",
        options=("delete", "trigger", *rules.CONSENTS),
        rehearsed=True,
    )

    def __init__(self, triggers: Peer) -> None:
        self._peer = triggers
        self._stub: Any = triggers.stub(triggers_pb2_grpc.TriggersServiceStub)

    async def read(self, actor: Actor, rest: str, given: Reading) -> Output:
        """One trigger with its newest firings, or all of them."""
        name = rest.rstrip("/")
        triggers = await self._all(actor)
        if not name:
            return Output(self._listing(triggers))
        found = _of_name(triggers, name)
        if found is None:
            return Output(self._listing(triggers, f"No trigger named {name}."))
        r = await self._call(self._stub.GetTrigger, pb.GetTriggerRequest(trigger_id=found.id), actor)
        return Output(_whole(r.trigger, r.firings[:TRIGGER_READ_FIRINGS]))

    async def write(self, actor: Actor, rest: str, given: Writing) -> Output:
        """Create or replace a trigger, delete it, or try it on what has happened."""
        name = rest.rstrip("/")
        if not name or "/" in name:
            raise VerbError("write ~/triggers/<name> needs the name of one trigger, without a slash")
        deletes = flag(given.options, "delete")
        found = _of_name(await self._all(actor), name)
        if deletes:
            if given.dry_run:
                raise VerbError("A deletion cannot be rehearsed")
            return await self._delete(actor, name, found)
        trigger = {**json_object(given, "trigger", rules.EXPECTS), "name": name if found is None else found.name}
        trigger.setdefault("enabled", True)
        if found is not None and found.HasField("merged_into"):
            raise VerbError(f"Trigger {name} was merged into {found.merged_into} and cannot be written")
        consents = {consent: flag(given.options, consent) for consent in rules.CONSENTS}
        rules.check_consent(trigger, None if found is None else msgspec.json.decode(found.source), consents)
        if given.dry_run:
            return await self._rehearse(actor, trigger)
        return Output(_saved(await self._store(actor, trigger, found)))

    async def entries(self, actor: Actor) -> list[dict[str, Any]]:
        """One entry a trigger, newest change first."""
        return [_entry(trigger) for trigger in await self._all(actor)]

    async def _all(self, actor: Actor) -> list[pb.Trigger]:
        r = await self._call(self._stub.ListTriggers, pb.ListTriggersRequest(agent_id=actor.agent_id), actor)
        return list(r.triggers)

    async def _store(self, actor: Actor, trigger: dict[str, Any], found: pb.Trigger | None) -> pb.Trigger:
        if found is None:
            # Tried again, it makes one trigger.
            request = pb.CreateTriggerRequest(
                agent_id=actor.agent_id, trigger=wire.encode(trigger), client_request_id=str(uuid.uuid4())
            )
            return (await self._call(self._stub.CreateTrigger, request, actor)).trigger
        patch = {key: trigger[key] for key in ("name", "enabled", "source", "prompt") if key in trigger}
        missing = [key for key in ("source", "prompt") if key not in patch]
        if missing:
            raise VerbError(rules.EXPECTS)
        patch["continuation"] = trigger.get("continuation", {"kind": "newThread"})
        request = pb.UpdateTriggerRequest(trigger_id=found.id, patch=wire.encode(patch))
        return (await self._call(self._stub.UpdateTrigger, request, actor)).trigger

    async def _delete(self, actor: Actor, name: str, found: pb.Trigger | None) -> Output:
        if found is None:
            return Output({"summary": f"There was no trigger named {name}.", "name": name, "deleted": False})
        try:
            await self._call(self._stub.DeleteTrigger, pb.DeleteTriggerRequest(trigger_id=found.id), actor)
        except NotFound:
            return Output({"summary": f"There was no trigger named {name}.", "name": name, "deleted": False})
        summary = f"The trigger {found.name} is deleted."
        return Output({"summary": summary, "name": found.name, "id": found.id, "deleted": True})

    async def _rehearse(self, actor: Actor, trigger: dict[str, Any]) -> Output:
        request = pb.DryRunRequest(agent_id=actor.agent_id, trigger=wire.encode(trigger))
        r = await self._peer.call(self._stub.DryRun, request, account=actor.owner, timeout_s=_DRY_RUN_S)
        matches = [
            {
                "activityKey": match.activity_key,
                "activitySummary": match.activity_summary,
                **({"at": match.at} if match.at else {}),
                "matchedConditions": list(match.matched_conditions),
            }
            for match in r.matches
        ]
        summary = f"Of the newest {r.checked} events {len(matches)} would have fired it. Nothing is saved."
        return Output({"summary": summary, "dryRun": True, "checked": r.checked, "matches": matches})

    async def _call(self, method: Any, request: Any, actor: Actor) -> Any:
        return await self._peer.call(method, request, account=actor.owner, timeout_s=PATIENCE_S, retry=True)

    def _listing(self, triggers: Sequence[pb.Trigger], summary: str = "") -> dict[str, Any]:
        count = f"{len(triggers)} trigger{'' if len(triggers) == 1 else 's'}."
        return {
            "summary": summary or count,
            "triggers": [_entry(trigger) for trigger in triggers],
            "contract": rules.CONTRACT,
        }


def _of_name(triggers: Sequence[pb.Trigger], name: str) -> pb.Trigger | None:
    """The trigger of a name, else of an id. Raises VerbError when several have the name."""
    named = [trigger for trigger in triggers if trigger.name == name]
    if len(named) > 1:
        ids = ", ".join(f"~/triggers/{trigger.id}" for trigger in named)
        raise VerbError(f"{len(named)} triggers are named {name}. Name one by its id: {ids}")
    return named[0] if named else next((trigger for trigger in triggers if trigger.id == name), None)


def _entry(trigger: pb.Trigger) -> dict[str, Any]:
    source: dict[str, Any] = msgspec.json.decode(trigger.source)
    return {
        "name": trigger.name,
        "id": trigger.id,
        "status": "active" if trigger.enabled else "disabled",
        "type": source.get("type"),
        "when": rules.when(source),
        **_history(trigger),
    }


def _history(trigger: pb.Trigger) -> dict[str, Any]:
    value: dict[str, Any] = {}
    if trigger.HasField("last_fired_at"):
        value["lastFiredAt"] = trigger.last_fired_at
    if trigger.HasField("last_error"):
        value["lastError"] = trigger.last_error
    if trigger.HasField("merged_into"):
        value["mergedInto"] = trigger.merged_into
    return value


def _whole(trigger: pb.Trigger, firings: Sequence[pb.Firing]) -> dict[str, Any]:
    source: Mapping[str, Any] = msgspec.json.decode(trigger.source)
    status = "active" if trigger.enabled else "disabled"
    value: dict[str, Any] = {
        "summary": f'The trigger "{trigger.name}" is {status}: {rules.when(source)}.',
        "id": trigger.id,
        "name": trigger.name,
        "enabled": trigger.enabled,
        "source": source,
        "prompt": trigger.prompt_markdown,
    }
    value |= {"continuation": msgspec.json.decode(trigger.continuation)} if trigger.continuation else {}
    value |= {"createdAt": trigger.created_at, "updatedAt": trigger.updated_at, **_history(trigger)}
    return value | {"recentFirings": [_firing(firing) for firing in firings]}


def _firing(firing: pb.Firing) -> dict[str, Any]:
    value: dict[str, Any] = {"firingId": firing.id}
    if firing.HasField("session_id"):
        value |= {"sessionId": firing.session_id, "thread": f"thread:{firing.session_id}"}
    value["status"] = firing.status
    value |= {"error": firing.error} if firing.HasField("error") else {}
    return value | {"firedAt": firing.fired_at}


def _saved(trigger: pb.Trigger) -> dict[str, Any]:
    source: Mapping[str, Any] = msgspec.json.decode(trigger.source)
    state = "on" if trigger.enabled else "off"
    return {
        "summary": f'The trigger "{trigger.name}" is saved and {state}: {rules.when(source)}.',
        "id": trigger.id,
        "name": trigger.name,
        "enabled": trigger.enabled,
        "source": source,
    }
