"""The embedded default: PostgreSQL, NATS and Valkey from their wheels, the supervisor, and the command line.

`Stack` is the whole system for tests and tools; `seed-agents up` is the same for people.
"""

from .errors import Aborted, AlreadyRunning, Death, StackError, StartError
from .process import ManagedProcess
from .stack import Stack
from .stores import Stores

__all__ = [
    "Aborted",
    "AlreadyRunning",
    "Death",
    "ManagedProcess",
    "Stack",
    "StackError",
    "StartError",
    "Stores",
]
