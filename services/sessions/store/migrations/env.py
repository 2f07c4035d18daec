"""Alembic environment of the sessions schema."""

from libs.store.migrate import run_env
from services.sessions.store.tables import metadata

run_env(metadata)
