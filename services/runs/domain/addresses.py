"""Addresses that verbs read and write, and the rules of what comes with them (runtime.md, section 6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from libs.protocol.text import WHITESPACE
from services.runs.domain.verbs import VerbError

_MOVED = {"dryRun": "dryRun stands beside address and content, not in options."}


@dataclass(frozen=True, slots=True)
class Form:
    """A form of addresses: what begins with `~/<room>` as a path, or with `<scheme>:`.

    `shown` is how it is named in errors, `written` the form that a write names; `options` are those of a write.
    `rehearsed` says that a write can be tried without effect.
    """

    prefix: str
    shown: str
    written: str = ""
    options: Sequence[str] = ()
    rehearsed: bool = False

    def rest(self, address: str) -> str | None:
        """What stands behind the prefix; None for an address of another form."""
        if not self.prefix.startswith("~/"):
            return address[len(self.prefix) :].strip(WHITESPACE) if address.startswith(self.prefix) else None
        if address == self.prefix:
            return ""
        return address[len(self.prefix) + 1 :] if address.startswith(self.prefix + "/") else None


@dataclass(frozen=True, slots=True)
class Reading:
    """What a read asks for besides its address."""

    format: str
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Writing:
    """What a write brings besides its address. `content` is None when there is none."""

    content: str | None
    options: Mapping[str, Any]
    dry_run: bool


def address_of(verb: str, arguments: Mapping[str, Any]) -> str:
    """The address of a call. Raises VerbError without one."""
    value = arguments.get("address")
    address = value.strip(WHITESPACE) if isinstance(value, str) else ""
    if not address:
        raise VerbError(f"{verb} requires an address")
    return address


def unrecognized(address: str, forms: Sequence[Form]) -> VerbError:
    """The refusal of an address that none of `forms` has."""
    return VerbError(f"Unrecognized address: {address}. Supported: {', '.join(form.shown for form in forms)}.")


def reading(arguments: Mapping[str, Any]) -> Reading:
    """The rest of a read. What is no object counts as no options."""
    options = arguments.get("options")
    return Reading(
        "json" if arguments.get("format") == "json" else "markdown", options if isinstance(options, Mapping) else {}
    )


def writing(arguments: Mapping[str, Any]) -> Writing:
    """The rest of a write, whatever its form. Raises VerbError for values of a wrong type."""
    dry_run = arguments.get("dryRun", False)
    if not isinstance(dry_run, bool):
        raise VerbError("write dryRun must be a boolean")
    content, options = arguments.get("content"), arguments.get("options")
    if content is not None and not isinstance(content, str):
        raise VerbError("write content must be text")
    if options is not None and not isinstance(options, Mapping):
        raise VerbError("write options must be an object")
    return Writing(content, options or {}, dry_run)


def check_writing(form: Form, given: Writing) -> None:
    """Let pass what a form understands. Raises VerbError: nothing that a write brings is ever dropped silently."""
    unknown = [key for key in given.options if key not in form.options]
    if unknown:
        named = ", ".join(f'"{key}"' for key in unknown)
        supported = ", ".join(form.options) or "none"
        hints = "".join(f" {_MOVED[key]}" for key in unknown if key in _MOVED)
        raise VerbError(
            f"write {form.written} does not understand option{'s' if len(unknown) > 1 else ''} {named}. "
            f"Supported options: {supported}.{hints}"
        )
    if given.dry_run and not form.rehearsed:
        raise VerbError(f"write {form.written} cannot be rehearsed: dryRun is not supported there")


def flag(options: Mapping[str, Any], name: str) -> bool:
    """An option that is true or false. Raises VerbError for another value."""
    value = options.get(name, False)
    if not isinstance(value, bool):
        raise VerbError(f"options.{name} must be a boolean")
    return value


def text_option(options: Mapping[str, Any], name: str) -> str:
    """An option that is text; empty without one. Raises VerbError for another value."""
    value = options.get(name)
    if value is not None and not isinstance(value, str):
        raise VerbError(f"options.{name} must be text")
    return (value or "").strip(WHITESPACE)
