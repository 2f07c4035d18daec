"""PostgreSQL: pool, compiled statements, transactions with an outbox, migrations.

Statements are written in SQLAlchemy Core, compiled once, and run on asyncpg directly: the async engine costs several
times what the statement itself does. A commit is the only acknowledgement there is.
"""

from libs.store.answers import Answers
from libs.store.database import Database, Emitter, Reader, Row, Tx
from libs.store.outbox import Draft, Outbox, Single, outbox_table
from libs.store.signatures import AcceptedSignatures, accepted_signatures_table
from libs.store.sql import Sql, param, relaxed, sql

__all__ = [
    "AcceptedSignatures",
    "Answers",
    "Database",
    "Draft",
    "Emitter",
    "Outbox",
    "Reader",
    "Row",
    "Single",
    "Sql",
    "Tx",
    "accepted_signatures_table",
    "outbox_table",
    "param",
    "relaxed",
    "sql",
]
