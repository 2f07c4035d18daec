"""The agent's Space in a turn: the verbs it is reached by, and what the model sees of it (runtime.md, 5 and 6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import msgspec
from seed.sessions.v1 import turns_pb2

from libs import wire
from libs.protocol.models import sees_images
from libs.protocol.tools import CALLABLES
from services.runs.domain import grants
from services.runs.domain.transcript import LogEvent
from services.runs.providers.contract import ImagePart, Message, ModelConfig, TextPart, ToolSpec, UserMessage
from services.runs.verbs.contract import Actor
from services.runs.verbs.dispatch import NAMES, Verbs


class Space:
    """Executes `read`, `write`, `call` and promoted callables for an actor, whose log shows what it has looked at.

    `actor` is asked for when it is needed: most turns use no verb, and need not read the definition.
    """

    def __init__(self, verbs: Verbs, actor: Callable[[], Actor], events: Sequence[LogEvent]) -> None:
        self._verbs, self._make_actor = verbs, actor
        looked_at = grants.promoted(events, CALLABLES)
        self._promoted = dict.fromkeys(name for name in looked_at if name in self._actor.callables)
        self._images: list[TextPart | ImagePart] = []

    @cached_property
    def _actor(self) -> Actor:
        return self._make_actor()

    @classmethod
    def of_turn(
        cls, verbs: Verbs, begin: turns_pb2.BeginTurnResponse, model: ModelConfig, events: Sequence[LogEvent]
    ) -> Self:
        """What the turn's definition grants, narrowed by the delegation that it works under."""

        def actor() -> Actor:
            definition: Any = wire.decode(begin.definition) if begin.definition else {}
            spec: Any = msgspec.json.decode(begin.spec) if begin.spec else {}
            tools, asked = definition.get("tools"), spec.get("tools")
            return Actor(
                owner=begin.session.account,
                agent_id=begin.session.agent_id,
                session_id=begin.session.id,
                definition=definition,
                callables=grants.callables(tools, asked),
                publishes=grants.publishes(tools, asked),
                sees_images=sees_images(model.provider_type, model.model),
            )

        return cls(verbs, actor, events)

    @property
    def specs(self) -> list[ToolSpec]:
        """Promoted callables, then the verbs."""
        return [*map(self._verbs.promoted, self._promoted), *self._verbs.specs]

    def has(self, name: str) -> bool:
        """Whether a call of this name is executed here."""
        return name in NAMES or name in self._promoted

    async def execute(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Run a call. Raises VerbError with a text for the model."""
        if name in self._promoted:
            name, arguments = "call", {"tool": name, "input": arguments}
        output = await self._verbs.execute(name, self._actor, arguments)
        looked_at = grants.looked_at(name, arguments)
        if looked_at in self._actor.callables:
            self._promoted.setdefault(looked_at)
        if output.images:
            self._images += [TextPart(str(output.value.get("summary", ""))), *output.images]
        return output.value

    def shown(self) -> list[Message]:
        """What the last calls gave the model to see, once."""
        images, self._images = self._images, []
        return [UserMessage(images)] if images else []
