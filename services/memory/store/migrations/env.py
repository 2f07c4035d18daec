"""Alembic environment of the memory schema."""

from libs.store.migrate import run_env
from services.memory.store.tables import metadata

run_env(metadata)
