"""The Space index: what an agent has in its Space, in short (runtime.md, section 6)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from libs.protocol.limits import SPACE_INDEX_CHARS, SPACE_INDEX_MEMORY_ENTRIES, SPACE_INDEX_TRIGGERS

_NAME_CHARS = 120
_HOW_TO = "read ~/tools/ to see what you can call and how; call uses a tool by its name"


@dataclass(frozen=True, slots=True)
class ToolLine:
    """A tool that is enabled."""

    name: str
    kind: str
    summary: str


@dataclass(frozen=True, slots=True)
class Space:
    """What an agent has. `top` holds the first entries of its memory, directories with a slash and their number of
    files, `entries` how many there are; `triggers` the names of the active ones.
    """

    files: int = 0
    entries: int = 0
    top: Sequence[str] = ()
    tools: Sequence[ToolLine] = ()
    triggers: Sequence[str] = ()
    rendered: dict[frozenset[str], str] = field(default_factory=dict, compare=False, repr=False)

    def index(self, callables: Collection[str]) -> str:
        """The index of who may use these callables; at most 2048 characters."""
        key = frozenset(callables)
        text = self.rendered.get(key)
        if text is None:
            text = self.rendered[key] = self._index(key)
        return text

    def _index(self, callables: frozenset[str]) -> str:
        offered = [tool for tool in self.tools if tool.kind != "builtin" or tool.name in callables]
        top, triggers = list(self.top[:SPACE_INDEX_MEMORY_ENTRIES]), list(self.triggers[:SPACE_INDEX_TRIGGERS])
        lines = [_tool(tool) for tool in offered]
        text = self._whole(lines, top, triggers)
        if len(text) > SPACE_INDEX_CHARS:
            lines = [f"- {len(offered)} tools"]
            text = self._whole(lines, top, triggers)
        while len(text) > SPACE_INDEX_CHARS and (top or triggers):
            (top if len(top) >= len(triggers) else triggers).pop()
            text = self._whole(lines, top, triggers)
        return text

    def _whole(self, tools: Sequence[str], top: Sequence[str], triggers: Sequence[str]) -> str:
        files = f"{self.files} file{'' if self.files == 1 else 's'}: {_listed(top, self.entries)}"
        active = f"{len(self.triggers)} active: {_listed(triggers, len(self.triggers))}"
        return "\n".join(
            (
                "<space>",
                f"tools/ — {_HOW_TO}",
                *tools,
                f"memory/ — {files if self.files else 'empty'}",
                f"triggers/ — {active if self.triggers else 'none active'}",
                "</space>",
            )
        )


def _tool(tool: ToolLine) -> str:
    return f"- {_safe(tool.name)}: {_safe(tool.summary)}{' (authored)' if tool.kind == 'lambda' else ''}"


def _listed(names: Sequence[str], of: int) -> str:
    shown = ", ".join(map(_safe, names))
    if len(names) >= of:
        return shown
    return f"{shown}{', ' if shown else ''}and {of - len(names)} more"


def _safe(name: str) -> str:
    """A name as data: on one line, without what could end the index."""
    line = " ".join(name.split()).replace("<", "\\u003c")
    return line if len(line) <= _NAME_CHARS else line[: _NAME_CHARS - 1] + "…"
