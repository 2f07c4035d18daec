"""Model provider rows, and what is read together with them."""

from __future__ import annotations

import json

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, insert

from libs import events
from libs.audit import Actor
from libs.store import Database, Outbox, sql
from libs.store.audit import Audit
from libs.store.database import Row
from services.secrets.domain.providers import (
    SUBSCRIPTION,
    ProviderConfig,
    ResolvableProvider,
    SealedValue,
    StoredProvider,
)
from services.secrets.domain.vault import WrappedKey
from services.secrets.store.tables import data_keys, model_providers, secrets
from services.secrets.store.tokens import PROVIDER_CHANGED


class ProviderRows:
    """Reads and writes providers; a change is told to the account once it has committed."""

    def __init__(self, db: Database, outbox: Outbox, audit: Audit) -> None:
        self._db, self._outbox, self._audit = db, outbox, audit
        p, s, k = model_providers, secrets, data_keys
        account, name = sa.bindparam("account"), sa.bindparam("name")

        signed_in = (
            sa.select(~s.c.needs_reauth)
            .where(s.c.account == p.c.account, s.c.name == p.c.secret_refs.op("->>")(sa.text("'oauth'")))
            .correlate(p)
            .scalar_subquery()
        )
        seen = (
            p.c.id,
            p.c.name,
            p.c.type,
            p.c.auth_mode,
            (p.c.secret_refs != sa.text("'{}'::jsonb")).label("has_secrets"),
            sa.case(
                (p.c.auth_mode == sa.literal_column("'subscription'"), sa.func.coalesce(signed_in, sa.false()))
            ).label("signed_in"),
            p.c.created_at,
            p.c.updated_at,
        )
        self._list = sql(sa.select(*seen).where(p.c.account == account).order_by(p.c.updated_at.desc(), p.c.name))

        new = insert(p).values({c.name: sa.bindparam(c.name) for c in p.c})
        self._put = sql(
            new.on_conflict_do_update(
                index_elements=["account", "name"],
                set_={
                    **{c: new.excluded[c] for c in ("type", "auth_mode", "base_url", "model_defaults", "secret_refs")},
                    "updated_at": sa.func.greatest(new.excluded.updated_at, p.c.updated_at + 1),
                },
            ).returning(p.c.id)
        )
        # Read apart: a subquery in RETURNING does not see the row it belongs to.
        self._one = sql(sa.select(*seen).where(p.c.id == sa.bindparam("id")))

        # Whether a secret is still referenced must not change while a provider that references it is deleted.
        self._lock = sql(sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtextextended(account, sa.text("0")))))
        self._delete = sql(sa.delete(p).where(p.c.account == account, p.c.name == name).returning(p.c.secret_refs))
        reference = sa.func.jsonb_each_text(p.c.secret_refs).table_valued("key", "value", name="reference")
        referenced = (
            sa.select(sa.literal_column("1"))
            .select_from(p.join(reference, sa.true()))
            .where(p.c.account == account, reference.c.value == s.c.name)
        )
        self._delete_secrets = sql(
            sa.delete(s)
            .where(
                s.c.account == account,
                s.c.name == sa.any_(sa.bindparam("names", type_=ARRAY(sa.Text))),
                ~referenced.exists(),
            )
            .returning(s.c.name)
        )

        used = sa.case(
            (p.c.auth_mode == sa.literal_column("'subscription'"), sa.text("'oauth'")), else_=sa.text("'apiKey'")
        )
        secret_name = p.c.secret_refs.op("->>")(used)
        self._resolve = sql(
            sa.select(
                p.c.type,
                p.c.auth_mode,
                p.c.base_url,
                p.c.model_defaults,
                secret_name.label("secret_name"),
                s.c.sealed,
                k.c.key_id,
                k.c.wrapped,
            )
            .select_from(
                p.outerjoin(s, (s.c.account == p.c.account) & (s.c.name == secret_name)).outerjoin(
                    k, k.c.account == p.c.account
                )
            )
            .where(p.c.account == account, p.c.name == name)
        )

        wanted = sa.bindparam("keys", type_=ARRAY(sa.Text))
        kept = sa.select(s).where(s.c.account == account, s.c.is_account_key, s.c.name == sa.any_(wanted))
        self._references = sql(
            sa.select(
                sa.select(p.c.type).where(p.c.account == account, p.c.name == name).scalar_subquery().label("type"),
                *(
                    sa.func.array(kept.with_only_columns(column).order_by(s.c.name).scalar_subquery()).label(column.key)
                    for column in (s.c.name, s.c.metadata)
                ),
            )
        )

    async def list(self, account: str) -> list[StoredProvider]:
        """All providers of an account, newest change first."""
        return [_stored(row) for row in await self._db.fetch(self._list, account=account)]

    async def put(self, new_id: str, by: Actor, name: str, config: ProviderConfig, now_ms: int) -> StoredProvider:
        """Insert or replace; id and creation time of an existing row stay."""
        account = by.account
        async with self._outbox.transaction() as tx:
            await tx.fetch(self._lock, account=account)
            stored = await tx.fetchval(
                self._put,
                id=new_id,
                account=account,
                name=name,
                type=config.type,
                auth_mode=config.auth_mode,
                base_url=config.base_url,
                model_defaults=config.model_defaults,
                secret_refs=json.dumps(config.secret_refs),
                created_at=now_ms,
                updated_at=now_ms,
            )
            row = await tx.fetchrow(self._one, id=stored)
            assert row is not None
            await self._audit.record(tx, by, "provider.set", name, detail=config.type)
            tx.emit(*events.account_hint(account, PROVIDER_CHANGED, only=(account,)))
        return _stored(row)

    async def delete(self, by: Actor, name: str) -> bool:
        """Delete a provider and the secrets only it referenced; False when there is no such provider."""
        account = by.account
        async with self._outbox.transaction() as tx:
            await tx.fetch(self._lock, account=account)
            row = await tx.fetchrow(self._delete, account=account, name=name)
            if row is None:
                return False
            names = list(json.loads(row["secret_refs"]).values())
            await self._audit.record(tx, by, "provider.delete", name)
            for gone in await tx.fetch(self._delete_secrets, account=account, names=names):
                await self._audit.record(tx, by, "secret.delete", gone["name"], detail=f"with provider {name}")
            tx.emit(*events.account_hint(account, PROVIDER_CHANGED, only=(account,)))
        return True

    async def resolve(self, account: str, name: str) -> ResolvableProvider | None:
        """A provider with the sealed secret it uses and the account's data key, in one statement."""
        row = await self._db.fetchrow(self._resolve, account=account, name=name)
        if row is None:
            return None
        value = None
        if row["sealed"] is not None and row["wrapped"] is not None:
            value = SealedValue(row["secret_name"], row["sealed"], WrappedKey(row["key_id"], row["wrapped"]))
        return ResolvableProvider(
            type=row["type"],
            subscription=row["auth_mode"] == SUBSCRIPTION,
            base_url=row["base_url"],
            model_defaults=row["model_defaults"] or b"",
            names_secret=row["secret_name"] is not None,
            secret=value,
        )

    async def references(self, account: str, provider: str, keys: list[str]) -> tuple[str | None, dict[str, bytes]]:
        """The type of a provider (None: there is none), and metadata of those names that are stored account keys."""
        row = await self._db.fetchrow(self._references, account=account, name=provider, keys=keys)
        assert row is not None
        return row["type"], dict(zip(row["name"], row["metadata"], strict=True))


def _stored(row: Row) -> StoredProvider:
    return StoredProvider(
        id=row["id"],
        name=row["name"],
        type=row["type"],
        has_secrets=row["has_secrets"],
        subscription=row["auth_mode"] == SUBSCRIPTION,
        signed_in=bool(row["signed_in"]),
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )
