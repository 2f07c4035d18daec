"""First tables."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def _name(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text(collation="C"), nullable=False)


def _time(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False)


def upgrade() -> None:
    op.create_table(
        "data_keys",
        _name("account"),
        _name("key_id"),
        sa.Column("wrapped", sa.LargeBinary, nullable=False),
        _time("created_at"),
        sa.PrimaryKeyConstraint("account"),
    )
    op.create_table(
        "secrets",
        _name("id"),
        _name("account"),
        _name("name"),
        sa.Column("sealed", sa.LargeBinary, nullable=False),
        sa.Column("metadata", sa.LargeBinary, nullable=True),
        sa.Column("is_account_key", sa.Boolean, nullable=False),
        sa.Column("needs_reauth", sa.Boolean, nullable=False),
        _time("created_at"),
        _time("updated_at"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("account", "name", name="secrets_account_name"),
    )
    op.create_index(
        "secrets_account_keys", "secrets", ["account", "created_at"], postgresql_where=sa.text("is_account_key")
    )
    op.create_table(
        "model_providers",
        _name("id"),
        _name("account"),
        _name("name"),
        _name("type"),
        _name("auth_mode"),
        _name("base_url"),
        sa.Column("model_defaults", sa.LargeBinary, nullable=True),
        sa.Column("secret_refs", JSONB, nullable=False),
        _time("created_at"),
        _time("updated_at"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("account", "name", name="model_providers_account_name"),
    )
    op.create_table(
        "account_authorizations",
        _name("account"),
        _name("signer"),
        _name("role"),
        sa.Column("capability", sa.LargeBinary, nullable=True),
        _time("created_at"),
        _time("updated_at"),
        sa.PrimaryKeyConstraint("account", "signer"),
    )
    op.create_table(
        "client_requests",
        _name("account"),
        _name("action"),
        _name("client_request_id"),
        sa.Column("request_digest", sa.LargeBinary, nullable=False),
        sa.Column("response", sa.LargeBinary, nullable=False),
        _time("created_at"),
        sa.PrimaryKeyConstraint("account", "action", "client_request_id"),
    )
    op.create_table(
        "outbox",
        sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    for table in ("outbox", "client_requests", "account_authorizations", "model_providers", "secrets", "data_keys"):
        op.drop_table(table)
