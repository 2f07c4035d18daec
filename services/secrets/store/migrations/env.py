"""Alembic environment of the secrets schema."""

from libs.store.migrate import run_env
from services.secrets.store.tables import metadata

run_env(metadata)
