"""Alembic environment of the triggers schema."""

from libs.store.migrate import run_env
from services.triggers.store.tables import metadata

run_env(metadata)
