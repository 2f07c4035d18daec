"""Alembic environment of the runs schema."""

from libs.store.migrate import run_env
from services.runs.store.tables import metadata

run_env(metadata)
