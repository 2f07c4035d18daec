"""What the dispatcher and the forms of addresses say to each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from services.runs.domain.addresses import Form, Reading, Writing
from services.runs.providers.contract import ImagePart


@dataclass(frozen=True, slots=True)
class Actor:
    """For whom a verb is executed: the agent in a session, with what its definition grants.

    `owner` is the account that owns the agent: all reading and writing happens for it. `by_user` when a person uses the
    verb.
    """

    owner: str
    agent_id: str
    session_id: str
    definition: Mapping[str, Any] = field(repr=False)
    callables: frozenset[str] = frozenset()
    publishes: bool = False
    sees_images: bool = False
    by_user: bool = False


@dataclass(frozen=True, slots=True)
class Output:
    """What a verb gives: `value` is stored and told, `images` are seen by the model alone, once."""

    value: dict[str, Any]
    images: Sequence[ImagePart] = ()


class Readable(Protocol):
    """A form of addresses that can be read. Errors are VerbErrors and SeedErrors; the model gets their text."""

    form: Form

    async def read(self, actor: Actor, rest: str, given: Reading) -> Output:
        """What stands at an address; `rest` is what is behind the form's prefix."""
        ...


class Writable(Protocol):
    """A form of addresses that can be written, under the same rules."""

    form: Form

    async def write(self, actor: Actor, rest: str, given: Writing) -> Output:
        """Change what stands at an address; `given` has passed the rules of the form."""
        ...
