"""Tables of the `memory` schema. Times are Unix milliseconds."""

from __future__ import annotations

import sqlalchemy as sa

from libs.objects import loose_objects_table
from libs.store import accepted_signatures_table, outbox_table

metadata = sa.MetaData()


def _id(name: str, *foreign: sa.ForeignKey, key: bool = False) -> sa.Column[str]:
    # Ids, paths and names are compared and ordered by bytes, whatever the database's locale.
    return sa.Column(name, sa.Text(collation="C"), *foreign, primary_key=key, nullable=False)


def _ms(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False)


spaces = sa.Table(
    "spaces",
    metadata,
    # Made at the agent's first write and locked by each: it orders them, and holds what all its files come to.
    _id("agent_id", key=True),
    _id("owner"),
    sa.Column("files", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("bytes", sa.BigInteger, nullable=False, server_default="0"),
    # Set when the agent was deleted: nothing is written any more.
    sa.Column("dropped_at", sa.BigInteger, nullable=True),
)
sa.Index("spaces_by_owner", spaces.c.owner)
sa.Index("spaces_dropped", spaces.c.dropped_at, postgresql_where=spaces.c.dropped_at.is_not(None))

memory_entries = sa.Table(
    "memory_entries",
    metadata,
    _id("agent_id", sa.ForeignKey("spaces.agent_id"), key=True),
    # Normalised; directories are what the paths of files say.
    _id("path", key=True),
    sa.Column("size", sa.BigInteger, nullable=False),
    # Whether all bytes are UTF-8 text without NUL.
    sa.Column("is_text", sa.Boolean, nullable=False),
    # SHA-256 of the bytes, lower-case hex
    sa.Column("sha256", sa.Text, nullable=False),
    # Key of the object that holds the bytes
    sa.Column("blob", sa.Text, nullable=False),
    _ms("updated_at"),
)

uploads = sa.Table(
    "uploads",
    metadata,
    _id("id", key=True),
    _id("agent_id", sa.ForeignKey("spaces.agent_id")),
    # Whose open uploads it counts among: the owner of the agent.
    _id("account"),
    sa.Column("path", sa.Text, nullable=False),
    # Declared bytes, and those that have come
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("received", sa.BigInteger, nullable=False, server_default="0"),
    _ms("created_at"),
    _ms("updated_at"),
)
sa.Index("uploads_by_account", uploads.c.account, uploads.c.updated_at)
sa.Index("uploads_by_agent", uploads.c.agent_id)
sa.Index("uploads_due", uploads.c.updated_at)

upload_chunks = sa.Table(
    "upload_chunks",
    metadata,
    _id("upload_id", sa.ForeignKey("uploads.id"), key=True),
    sa.Column("offset", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("blob", sa.Text, nullable=False),
)

loose_blobs = loose_objects_table(metadata)

tool_documents = sa.Table(
    "tool_documents",
    metadata,
    _id("agent_id", sa.ForeignKey("spaces.agent_id"), key=True),
    _id("name", key=True),
    # builtin, lambda or mcp
    sa.Column("kind", sa.Text, nullable=False),
    # Of the document, for listings; UTF-8, in bytes because PostgreSQL text cannot hold NUL
    sa.Column("summary", sa.LargeBinary, nullable=False),
    # Canonical DAG-CBOR (agents.cddl, ToolDocument), and the CID of these bytes
    sa.Column("document", sa.LargeBinary, nullable=False),
    sa.Column("cid", sa.Text, nullable=False),
    sa.Column("enabled", sa.Boolean, nullable=False, server_default=sa.true()),
    _ms("created_at"),
    _ms("updated_at"),
)

outbox = outbox_table(metadata)

accepted_signatures = accepted_signatures_table(metadata)
