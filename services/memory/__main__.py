"""`python -m services.memory` runs the service."""

from libs.process import run
from services.memory.server import serve
from services.memory.settings import MemorySettings

if __name__ == "__main__":
    run("memory", MemorySettings, serve)
