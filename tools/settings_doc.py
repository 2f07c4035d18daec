"""Writes docs/settings.md from what the services declare: `python tools/settings_doc.py`; `--check` only compares.

A process reads the settings that its own class declares, and of the common ones (`libs/settings`) those that its code
names.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

from pydantic.fields import FieldInfo

from libs.settings import Settings
from libs.settings.catalog import OTHERS, PREFIX
from services.edge.settings import EdgeSettings
from services.memory.settings import MemorySettings
from services.runs.settings import RunsSettings, WorkerSettings
from services.secrets.settings import SecretsSettings
from services.sessions.settings import SessionsSettings
from services.triggers.settings import TriggersSettings

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "settings.md"

PROCESSES: dict[str, type[Settings]] = {
    "edge": EdgeSettings,
    "sessions": SessionsSettings,
    "runs api": RunsSettings,
    "runs worker": WorkerSettings,
    "secrets": SecretsSettings,
    "memory": MemorySettings,
    "triggers": TriggersSettings,
}

_HEAD = """# Settings

Made by `make settings-doc` from what the services declare. Every process refuses to start when it finds a
`SEED_AGENTS_*` variable that nobody knows, or a value that it cannot use. `seed-agents up` gives its processes
addresses, URLs, keys and passwords by itself.

| variable | default | read by | meaning |
|---|---|---|---|
"""


def _named_for(process: str, settings: type[Settings]) -> set[str]:
    """Attributes that occur in functions of the process's service which take `settings` or a base of it."""
    classes = {cls.__name__ for cls in settings.__mro__}
    names: set[str] = set()
    for folder in ("libs/process", f"services/{process.split()[0]}"):
        for path in (ROOT / folder).rglob("*.py"):
            for function in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                    taken = {ast.unparse(a.annotation) for a in function.args.args if a.annotation is not None}
                    if taken & classes or "type[S]" in taken:
                        names |= {node.attr for node in ast.walk(function) if isinstance(node, ast.Attribute)}
    return names


def _default(field: FieldInfo) -> str:
    value = field.default
    if value == "":
        return "required" if any(getattr(m, "min_length", 0) for m in field.metadata) else "empty"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def page() -> str:
    """The text of docs/settings.md."""
    common = set(Settings.model_fields)
    named = {process: _named_for(process, settings) for process, settings in PROCESSES.items()}
    rows: dict[str, tuple[str, str, str]] = dict(OTHERS)
    for name in sorted({name for settings in PROCESSES.values() for name in settings.model_fields}):
        declaring = [process for process, settings in PROCESSES.items() if name in settings.model_fields]
        readers = [p for p in declaring if name not in common or name in named[p]]
        field = PROCESSES[declaring[0]].model_fields[name]
        by = "all" if len(readers) == len(PROCESSES) else ", ".join(readers) or "nobody"
        rows[name.upper()] = (_default(field), by, field.description or "")
    lines = [f"| `{PREFIX}{name}` | {default} | {by} | {text} |" for name, (default, by, text) in sorted(rows.items())]
    return _HEAD + "\n".join(lines) + "\n"


def main() -> int:
    """Write the page, or with `--check` say whether it is current (exit code 1: it is not)."""
    text = page()
    if "--check" in sys.argv[1:]:
        if PAGE.exists() and PAGE.read_text("utf-8") == text:
            return 0
        print("docs/settings.md is not current: run `make settings-doc`", file=sys.stderr)
        return 1
    PAGE.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
