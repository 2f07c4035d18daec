"""Tables of the `secrets` schema. Times are Unix milliseconds."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from libs.store import accepted_signatures_table, outbox_table
from libs.store.audit import audit_table

metadata = sa.MetaData()


def _name(name: str, *, key: bool = False) -> sa.Column[str]:
    # Ids and names are compared and ordered by bytes, whatever the database's locale.
    return sa.Column(name, sa.Text(collation="C"), primary_key=key, nullable=False)


def _time(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False)


data_keys = sa.Table(
    "data_keys",
    metadata,
    _name("account", key=True),
    # The key ring's key that wraps this one.
    _name("key_id"),
    sa.Column("wrapped", sa.LargeBinary, nullable=False),
    _time("created_at"),
)

secrets = sa.Table(
    "secrets",
    metadata,
    _name("id", key=True),
    _name("account"),
    _name("name"),
    # The value, sealed with the account's data key for this account and name.
    sa.Column("sealed", sa.LargeBinary, nullable=False),
    # DAG-CBOR as the client sent it.
    sa.Column("metadata", sa.LargeBinary, nullable=True),
    # Both are read off the metadata when it is written.
    sa.Column("is_account_key", sa.Boolean, nullable=False),
    sa.Column("needs_reauth", sa.Boolean, nullable=False),
    _time("created_at"),
    _time("updated_at"),
    sa.UniqueConstraint("account", "name", name="secrets_account_name"),
)
account_keys_index = sa.Index(
    "secrets_account_keys", secrets.c.account, secrets.c.created_at, postgresql_where=secrets.c.is_account_key
)

model_providers = sa.Table(
    "model_providers",
    metadata,
    _name("id", key=True),
    _name("account"),
    _name("name"),
    _name("type"),
    # api-key, subscription, or empty when the record names none.
    _name("auth_mode"),
    _name("base_url"),
    # DAG-CBOR as the client sent it.
    sa.Column("model_defaults", sa.LargeBinary, nullable=True),
    # Object of reference to secret name.
    sa.Column("secret_refs", JSONB, nullable=False),
    _time("created_at"),
    _time("updated_at"),
    sa.UniqueConstraint("account", "name", name="model_providers_account_name"),
)

account_authorizations = sa.Table(
    "account_authorizations",
    metadata,
    _name("account", key=True),
    _name("signer", key=True),
    # OWNER or AGENT; both give the same right.
    _name("role"),
    # The bytes that were verified.
    sa.Column("capability", sa.LargeBinary, nullable=True),
    _time("created_at"),
    _time("updated_at"),
)

client_requests = sa.Table(
    "client_requests",
    metadata,
    _name("account", key=True),
    _name("action", key=True),
    _name("client_request_id", key=True),
    # A digest: what was asked for may hold a key.
    sa.Column("request_digest", sa.LargeBinary, nullable=False),
    # The serialized answer of the first.
    sa.Column("response", sa.LargeBinary, nullable=False),
    _time("created_at"),
)

provider_logins = sa.Table(
    "provider_logins",
    metadata,
    _name("id", key=True),
    _name("account"),
    _name("provider_type"),
    # pending, submitted (a code waits for its exchange), exchanging, completed or failed.
    _name("status"),
    # Verifier and state, sealed; gone once finished.
    sa.Column("sealed", sa.LargeBinary, nullable=True),
    # What the sign-in page gave, sealed; gone once finished.
    sa.Column("sealed_code", sa.LargeBinary, nullable=True),
    # Empty unless completed.
    _name("secret_name"),
    # Empty unless failed.
    _name("error"),
    # Key that signed the request that submitted the code; empty before.
    _name("signer"),
    _time("created_at"),
    # When it ends by itself.
    _time("expires_at"),
    # Of the last change of its status.
    _time("changed_at"),
)
logins_by_account = sa.Index("provider_logins_account", provider_logins.c.account)
logins_at_work = sa.Index(
    "provider_logins_at_work",
    provider_logins.c.changed_at,
    postgresql_where=provider_logins.c.status.in_(["submitted", "exchanging"]),
)

audit = audit_table(metadata)

outbox = outbox_table(metadata)

accepted_signatures = accepted_signatures_table(metadata)
