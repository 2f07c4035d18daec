"""Paths of memory files (actions.md, Path rules; limits.md)."""

from __future__ import annotations

from libs.errors import Invalid, NotFound
from libs.protocol import limits
from libs.protocol.text import byte_length

_AFTER_SLASH = "0"
"""What follows the slash in byte order: everything below `a` is from `a/` up to `a0`."""


def segments(path: str | None) -> list[str]:
    """The parts of a path, none for the directory of all. None stands for a path that is not text.

    Raises Invalid with the documented texts.
    """
    if path is None:
        raise Invalid("Memory path must be a string")
    if "\0" in path:
        raise Invalid("Memory path contains an invalid character")
    return [part for part in path.replace("\\", "/").split("/") if part not in ("", ".")]


def normalized(path: str | None) -> str:
    """The path as it is stored. Raises as `segments`, and Invalid with the other texts of the rules."""
    parts = segments(path)
    if not parts:
        raise Invalid("Memory path is required")
    if len(parts) > limits.MEMORY_PATH_LEVELS:
        raise Invalid("Memory path is nested too deeply")
    if ".." in parts:
        raise Invalid('Memory path cannot contain ".."')
    found = "/".join(parts)
    if byte_length(found) > limits.MEMORY_PATH_BYTES:
        raise Invalid("Memory path is too long")
    return found


def parents(path: str) -> list[str]:
    """The directories a normalised path is in, outermost first, without the directory of all."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[: n + 1]) for n in range(len(parts))]


def below(path: str) -> tuple[str, str]:
    """First path that can be below a directory, and the first one after all of them, in byte order."""
    return f"{path}/", f"{path}{_AFTER_SLASH}"


def is_directory(path: str) -> Invalid:
    """The refusal to treat a directory as a file."""
    return Invalid(f"Memory path is a directory, not a file: {path}")


def not_writable(path: str) -> Invalid:
    """The refusal to write below a file."""
    return Invalid(f"Memory path is not writable: {path}")


def is_file(path: str) -> Invalid:
    """The refusal to list a file."""
    return Invalid(f"Memory path is a file, not a directory: {path}")


def not_found(path: str) -> NotFound:
    """There is no such file."""
    return NotFound(f"Memory file not found: {path}")
