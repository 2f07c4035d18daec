"""`python -m services.triggers api`, `monitor`, or `all` (both in one process)."""

import sys
from functools import partial

from libs.process import run
from services.triggers.server import ROLES, serve
from services.triggers.settings import TriggersSettings


def main() -> None:
    """Start the role named on the command line."""
    role = sys.argv[1] if len(sys.argv) == 2 else ""
    if role not in ROLES:
        raise SystemExit("usage: python -m services.triggers api|monitor|all")
    run(f"triggers-{role}" if role != "all" else "triggers", TriggersSettings, partial(serve, role))


if __name__ == "__main__":
    main()
