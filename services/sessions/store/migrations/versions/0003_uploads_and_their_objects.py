"""uploads and their objects"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("attachments", sa.Column("blob", sa.Text(), server_default="", nullable=False))
    op.create_table(
        "loose_blobs",
        sa.Column("key", sa.Text(collation="C"), nullable=False),
        sa.Column("due_at", sa.BigInteger(), nullable=False),
        sa.Column("taken", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_index("loose_blobs_due", "loose_blobs", ["due_at"], unique=False)
    op.create_table(
        "uploads",
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("session_id", sa.Text(collation="C"), nullable=False),
        sa.Column("account", sa.Text(collation="C"), nullable=False),
        sa.Column("name", sa.Text(), server_default="", nullable=False),
        sa.Column("mime_type", sa.Text(), nullable=True),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("received", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("uploads_by_account", "uploads", ["account", "updated_at"], unique=False)
    op.create_index("uploads_by_session", "uploads", ["session_id"], unique=False)
    op.create_index("uploads_due", "uploads", ["updated_at"], unique=False)
    op.create_table(
        "upload_chunks",
        sa.Column("upload_id", sa.Text(collation="C"), nullable=False),
        sa.Column("offset", sa.BigInteger(), nullable=False),
        sa.Column("blob", sa.Text(), server_default="", nullable=False),
        sa.ForeignKeyConstraint(["upload_id"], ["uploads.id"]),
        sa.PrimaryKeyConstraint("upload_id", "offset"),
    )


def downgrade() -> None:
    op.drop_table("upload_chunks")
    op.drop_table("uploads")
    op.drop_table("loose_blobs")
    op.drop_column("attachments", "blob")
