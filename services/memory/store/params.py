"""Parameters that many statements have."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

from libs.store import param

AGENT = param("agent_id", sa.Text)
PATH = param("path", sa.Text)
NOW = param("now", sa.BigInteger)
"""Unix milliseconds."""
IDS = param("ids", ARRAY(sa.Text))
