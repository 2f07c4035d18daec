"""Sign-ins."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def _name(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text(collation="C"), nullable=False)


def _time(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False)


def upgrade() -> None:
    op.create_table(
        "provider_logins",
        _name("id"),
        _name("account"),
        _name("provider_type"),
        _name("status"),
        sa.Column("sealed", sa.LargeBinary, nullable=True),
        sa.Column("sealed_code", sa.LargeBinary, nullable=True),
        _name("secret_name"),
        _name("error"),
        _name("signer"),
        _time("created_at"),
        _time("expires_at"),
        _time("changed_at"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("provider_logins_account", "provider_logins", ["account"])
    op.create_index(
        "provider_logins_at_work",
        "provider_logins",
        ["changed_at"],
        postgresql_where=sa.text("status IN ('submitted', 'exchanging')"),
    )


def downgrade() -> None:
    op.drop_table("provider_logins")
