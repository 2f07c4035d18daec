"""Wiring of secrets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from seed.audit.v1 import audit_pb2
from seed.secrets.v1 import admin_pb2
from seed.secrets.v1 import secrets_pb2 as pb

from libs import telemetry
from libs.egress import EgressPolicy
from libs.events import Bus
from libs.hypermedia.server import HypermediaServer
from libs.rpc import Peer, RpcServer, TokenSigner, TokenVerifier
from libs.settings import SettingsError
from libs.store import AcceptedSignatures, Answers, Database, Outbox
from libs.store.audit import Audit
from services.secrets.api.access import AgentAccess
from services.secrets.api.admin import AdminServicer
from services.secrets.api.audit import AuditServicer
from services.secrets.api.authorizations import AuthorizationsServicer
from services.secrets.api.identities import IdentitiesServicer, from_bytes, to_bytes
from services.secrets.api.providers import ProvidersServicer
from services.secrets.api.secrets import SecretsServicer
from services.secrets.api.sign_ins import SignInsServicer
from services.secrets.domain.authorizations import Authorizations
from services.secrets.domain.exchanges import Exchanges
from services.secrets.domain.identities import Identities
from services.secrets.domain.keyring import KeyRing, KeyRingError, LiveRing
from services.secrets.domain.models import ModelLists
from services.secrets.domain.providers import Providers
from services.secrets.domain.rotation import Rotation
from services.secrets.domain.secrets import Sealer, Secrets
from services.secrets.domain.sign_ins import SignIns
from services.secrets.domain.subscriptions import Subscriptions
from services.secrets.domain.vault import Vault
from services.secrets.outside import ModelsFetcher, TokenPoster
from services.secrets.settings import SecretsSettings
from services.secrets.store.authorizations import AuthorizationRows
from services.secrets.store.data_keys import DataKeyRows
from services.secrets.store.identities import IdentityRows
from services.secrets.store.locks import Locks
from services.secrets.store.logins import LoginRows
from services.secrets.store.providers import ProviderRows
from services.secrets.store.secrets import SecretRows
from services.secrets.store.tables import accepted_signatures
from services.secrets.store.tables import audit as audit_rows
from services.secrets.store.tables import outbox as outbox_rows
from services.secrets.store.tokens import TokenRows

log = telemetry.get_logger("secrets")

EXCHANGE_GRACE_S = 10.0
"""How long a stopping process waits for the exchanges of codes that it has begun: they cannot be begun again."""


async def serve(settings: SecretsSettings, stop: asyncio.Event, on_ready: Callable[[int], None] | None = None) -> None:
    """Serve until `stop` is set; `on_ready` is told the gRPC port. Ends the process when the key ring is unusable."""
    try:
        ring = KeyRing.parse(await asyncio.to_thread(settings.keyring_text))
    except (KeyRingError, SettingsError) as e:
        log.error("the key ring is not usable", error=str(e))
        raise SystemExit(2) from None
    now = time.time

    accepted = AcceptedSignatures(accepted_signatures)
    db = Database(settings.database_url, size=settings.database_pool, accepted=accepted)
    bus = Bus(settings.nats_url, "secrets")
    outbox = Outbox(db, outbox_rows, bus.publish, now)
    sessions = Peer("sessions", settings.sessions_addr, TokenSigner("secrets", settings.internal_key))
    vendor_urls = settings.vendor_urls()
    policy = EgressPolicy(settings.allow_private_providers, settings.allowed_hosts())
    fetcher = ModelsFetcher(policy, vendor_urls)

    audit = Audit(db, audit_rows, now)
    keys = DataKeyRows(db, audit)
    # Apart, so that a slow HM server keeps no worker from its tokens.
    publishing, refreshing = (Locks(db, max(1, settings.database_pool // 4)) for _ in range(2))
    hypermedia = HypermediaServer(settings.hm_server_url)
    live = LiveRing(ring, lambda: _ring_text(settings), keys.key_ids, _ring_refused)
    vault = Vault(live, settings.data_key_cache)
    access = AgentAccess(sessions)
    sealer = Sealer(vault, keys)
    secret_rows = SecretRows(db, audit)
    clients = settings.oauth_clients()
    poster = TokenPoster(clients.values())
    tokens = TokenRows(db, outbox, audit)
    subscriptions = Subscriptions(tokens, sealer, refreshing, poster, clients, now)
    providers = Providers(ProviderRows(db, outbox, audit), vault, subscriptions, now)
    models = ModelLists(providers, fetcher, vendor_urls)
    identities = Identities(IdentityRows(db, audit), sealer, publishing, hypermedia, now, to_bytes, from_bytes)
    authorizations = Authorizations(AuthorizationRows(db, outbox, audit), now)
    woken = asyncio.Event()
    logins = LoginRows(db, outbox, secret_rows, audit)
    sign_ins = SignIns(logins, sealer, now, clients, settings.subscription_auth, woken.set)
    exchanges = Exchanges(logins, sealer, poster, clients, now, woken)

    verifier = TokenVerifier("secrets", settings.internal_key)
    rpc = RpcServer(verifier, host=settings.grpc_host, port=settings.grpc_port, answers=Answers(db))
    services = pb.DESCRIPTOR.services_by_name
    rpc.add(services["SecretsService"], SecretsServicer(Secrets(secret_rows, sealer, now)))
    rpc.add(services["ProvidersService"], ProvidersServicer(providers, models, access))
    rpc.add(services["SignInsService"], SignInsServicer(sign_ins))
    rpc.add(services["IdentitiesService"], IdentitiesServicer(identities, access))
    rpc.add(services["AuthorizationsService"], AuthorizationsServicer(authorizations))
    admin = admin_pb2.DESCRIPTOR.services_by_name["SecretsAdminService"]
    rpc.add(admin, AdminServicer(Rotation(live, vault, keys), authorizations))
    rpc.add(audit_pb2.DESCRIPTOR.services_by_name["AuditService"], AuditServicer(audit))

    try:
        await db.open()
        await bus.start()
        for key_id in await keys.key_ids():
            if key_id not in ring:
                log.error("the key ring lacks a key that data is wrapped with", key_id=key_id)
        async with asyncio.TaskGroup() as tasks:
            background = [
                tasks.create_task(outbox.run(), name="outbox"),
                tasks.create_task(live.run(), name="key ring"),
            ]
            exchanging = None
            if settings.subscription_auth:
                exchanging = tasks.create_task(exchanges.run(), name="sign-ins")
                background.append(exchanging)
            await rpc.start()
            log.info("serving", port=rpc.port)
            if on_ready is not None:
                on_ready(rpc.port)
            await stop.wait()
            # Calls end first: they still need everything below.
            await rpc.stop()
            await subscriptions.settle()
            if exchanging is not None:
                exchanges.close()
                await asyncio.wait([exchanging], timeout=EXCHANGE_GRACE_S)
            for task in background:
                task.cancel()
        await outbox.close()
    finally:
        await bus.close()
        await poster.close()
        await hypermedia.close()
        await fetcher.close()
        await sessions.close()
        await db.close()


async def _ring_text(settings: SecretsSettings) -> str:
    try:
        return await asyncio.to_thread(settings.keyring_text)
    except SettingsError as e:
        raise KeyRingError(str(e)) from None


def _ring_refused(why: str) -> None:
    log.error("the key ring was read again and is not used", error=why)
