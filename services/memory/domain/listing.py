"""Listings: files as they are stored, and the directories that their paths imply."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from services.memory.domain.paths import parents


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or a directory. `updated_at` is Unix milliseconds; `entry_count` is of what is directly in a directory."""

    path: str
    size: int
    updated_at: int
    directory: bool = False
    entry_count: int = 0


def whole(files: Iterable[Entry]) -> list[Entry]:
    """All files and directories in the byte order of their paths. A directory is as new as the newest file below it."""
    found: dict[str, Entry] = {}
    newest: dict[str, int] = {}
    for file in files:
        found[file.path] = file
        for parent in parents(file.path):
            newest[parent] = max(newest.get(parent, 0), file.updated_at)
    found.update({path: Entry(path, 0, at, directory=True) for path, at in newest.items()})
    # Code points are in the order of their UTF-8 bytes.
    return [found[path] for path in sorted(found)]


def level(files: Sequence[Entry], directory: str) -> list[Entry]:
    """What is directly in a directory that `files` are below, in byte order."""
    start = len(directory) + 1 if directory else 0
    found: dict[str, Entry] = {}
    inside: dict[str, set[str]] = {}
    for file in files:
        name, slash, rest = file.path[start:].partition("/")
        if not slash:
            found[file.path] = file
            continue
        path = file.path[:start] + name
        inside.setdefault(path, set()).add(rest.partition("/")[0])
        at = max(file.updated_at, found[path].updated_at if path in found else 0)
        found[path] = Entry(path, 0, at, directory=True, entry_count=len(inside[path]))
    return [found[path] for path in sorted(found)]
