"""`python -m services.runs api` or `python -m services.runs worker`."""

import sys

from libs.process import run
from services.runs.server import serve_api, serve_worker
from services.runs.settings import RunsSettings, WorkerSettings


def main() -> None:
    """Start the role named on the command line."""
    role = sys.argv[1] if len(sys.argv) == 2 else ""
    if role == "api":
        run("runs-api", RunsSettings, serve_api)
    elif role == "worker":
        run("runs-worker", WorkerSettings, serve_worker)
    else:
        raise SystemExit("usage: python -m services.runs api|worker")


if __name__ == "__main__":
    main()
