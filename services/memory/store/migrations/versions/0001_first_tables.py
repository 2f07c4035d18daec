"""first tables"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "accepted_signatures",
        sa.Column("signature_hash", sa.LargeBinary(), nullable=False),
        sa.Column("account", sa.Text(collation="C"), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("answer", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("signature_hash"),
    )
    op.create_index("accepted_signatures_due", "accepted_signatures", ["expires_at"], unique=False)
    op.create_table(
        "loose_blobs",
        sa.Column("key", sa.Text(collation="C"), nullable=False),
        sa.Column("due_at", sa.BigInteger(), nullable=False),
        sa.Column("taken", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_index("loose_blobs_due", "loose_blobs", ["due_at"], unique=False)
    op.create_table(
        "outbox",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "spaces",
        sa.Column("agent_id", sa.Text(collation="C"), nullable=False),
        sa.Column("owner", sa.Text(collation="C"), nullable=False),
        sa.Column("files", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("bytes", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("dropped_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("agent_id"),
    )
    op.create_index("spaces_by_owner", "spaces", ["owner"], unique=False)
    op.create_index(
        "spaces_dropped", "spaces", ["dropped_at"], unique=False, postgresql_where=sa.text("dropped_at IS NOT NULL")
    )
    op.create_table(
        "memory_entries",
        sa.Column("agent_id", sa.Text(collation="C"), nullable=False),
        sa.Column("path", sa.Text(collation="C"), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("is_text", sa.Boolean(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("blob", sa.Text(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["agent_id"],
            ["spaces.agent_id"],
        ),
        sa.PrimaryKeyConstraint("agent_id", "path"),
    )
    op.create_table(
        "tool_documents",
        sa.Column("agent_id", sa.Text(collation="C"), nullable=False),
        sa.Column("name", sa.Text(collation="C"), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("summary", sa.LargeBinary(), nullable=False),
        sa.Column("document", sa.LargeBinary(), nullable=False),
        sa.Column("cid", sa.Text(), nullable=False),
        sa.Column("enabled", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["agent_id"],
            ["spaces.agent_id"],
        ),
        sa.PrimaryKeyConstraint("agent_id", "name"),
    )
    op.create_table(
        "uploads",
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("agent_id", sa.Text(collation="C"), nullable=False),
        sa.Column("account", sa.Text(collation="C"), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("received", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["agent_id"],
            ["spaces.agent_id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("uploads_by_account", "uploads", ["account", "updated_at"], unique=False)
    op.create_index("uploads_by_agent", "uploads", ["agent_id"], unique=False)
    op.create_index("uploads_due", "uploads", ["updated_at"], unique=False)
    op.create_table(
        "upload_chunks",
        sa.Column("upload_id", sa.Text(collation="C"), nullable=False),
        sa.Column("offset", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("blob", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["upload_id"],
            ["uploads.id"],
        ),
        sa.PrimaryKeyConstraint("upload_id", "offset"),
    )


def downgrade() -> None:
    op.drop_table("upload_chunks")
    op.drop_index("uploads_due", table_name="uploads")
    op.drop_index("uploads_by_agent", table_name="uploads")
    op.drop_index("uploads_by_account", table_name="uploads")
    op.drop_table("uploads")
    op.drop_table("tool_documents")
    op.drop_table("memory_entries")
    op.drop_index("spaces_dropped", table_name="spaces", postgresql_where=sa.text("dropped_at IS NOT NULL"))
    op.drop_index("spaces_by_owner", table_name="spaces")
    op.drop_table("spaces")
    op.drop_table("outbox")
    op.drop_index("loose_blobs_due", table_name="loose_blobs")
    op.drop_table("loose_blobs")
    op.drop_index("accepted_signatures_due", table_name="accepted_signatures")
    op.drop_table("accepted_signatures")
