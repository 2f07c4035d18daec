"""The one dispatcher of `read`, `write` and `call`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from libs import telemetry, wire
from libs.errors import SeedError
from services.runs.domain import addresses
from services.runs.domain.verbs import VerbError
from services.runs.providers.contract import ToolSpec
from services.runs.verbs.contract import Actor, Output, Readable, Writable
from services.runs.verbs.tools import Tools

log = telemetry.get_logger("verbs")

READ, WRITE, CALL_VERB = "read", "write", "call"
NAMES = (READ, WRITE, CALL_VERB)


class Verbs:
    """Executes verbs. `readable` and `writable` are the forms of addresses, in the order in which they are told.

    `specs` are read, write and call as models are offered them.
    """

    def __init__(
        self, readable: Sequence[Readable], writable: Sequence[Writable], tools: Tools, specs: Sequence[ToolSpec]
    ) -> None:
        self._readable, self._writable, self._tools, self.specs = readable, writable, tools, specs

    def promoted(self, name: str) -> ToolSpec:
        """A callable of this server as a tool of its own."""
        return self._tools.promoted(name)

    async def execute(self, verb: str, actor: Actor, arguments: Mapping[str, Any]) -> Output:
        """Run a verb of `NAMES`. Whatever goes wrong is a VerbError that says so to who used it."""
        try:
            if verb == READ:
                return await self._read(actor, arguments)
            if verb == WRITE:
                return await self._write(actor, arguments)
            return await self._tools.call(actor, arguments)
        except SeedError as e:
            raise VerbError(e.message) from None
        except VerbError:
            raise
        except wire.EncodeError as e:  # JSON knows numbers that no document can hold
            raise VerbError(f"{verb} was given a value that cannot be stored: {e}") from None
        except Exception as e:  # a fault of ours ends this use of the verb, not what goes on around it
            log.error("verb failed", verb=verb, error=type(e).__name__, exc_info=e)
            raise VerbError("Internal server error") from None

    async def _read(self, actor: Actor, arguments: Mapping[str, Any]) -> Output:
        address = addresses.address_of(READ, arguments)
        for one in self._readable:
            if (rest := one.form.rest(address)) is not None:
                return await one.read(actor, rest, addresses.reading(arguments))
        raise addresses.unrecognized(address, [one.form for one in self._readable])

    async def _write(self, actor: Actor, arguments: Mapping[str, Any]) -> Output:
        address = addresses.address_of(WRITE, arguments)
        given = addresses.writing(arguments)
        for one in self._writable:
            if (rest := one.form.rest(address)) is not None:
                addresses.check_writing(one.form, given)
                return await one.write(actor, rest, given)
        raise addresses.unrecognized(address, [one.form for one in self._writable])
