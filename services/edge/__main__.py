"""Start the edge: `python -m services.edge`."""

from __future__ import annotations

from libs import process
from services.edge.server import serve
from services.edge.settings import EdgeSettings

if __name__ == "__main__":
    process.run("edge", EdgeSettings, serve)
