"""Make a database ready for the services: a role and a schema each, then their migrations.

`python -m libs.stack.prepare` does it in a process of its own, so that the supervisor does not keep Alembic in memory
for as long as it runs. Standard input is one JSON object: {"url": the administrator's, "passwords": {role: password}}.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from libs.store.migrate import upgrade

from .errors import StackError
from .layout import DATABASE_SERVICES, role_of, role_url


async def prepare(url: str, passwords: Mapping[str, str], services: Sequence[str] = DATABASE_SERVICES) -> list[str]:
    """Roles, schemas and migrations of `services`; returns what it did, one line each.

    `passwords` by role name. StackError when the URL's user may not create roles. Safe to repeat.
    """
    done = await ensure_roles(url, passwords, services)
    for service in services:
        if await upgrade(service, role_url(url, role_of(service), passwords[role_of(service)])):
            done.append(f"migrated {service}")
    return done


async def ensure_roles(url: str, passwords: Mapping[str, str], services: Sequence[str]) -> list[str]:
    """Give each service a role that owns the schema of its name and can reach nothing else; returns what it did."""
    connection = await _connect(url)
    done: list[str] = []
    try:
        if not await connection.fetchval("SELECT rolsuper OR rolcreaterole FROM pg_roles WHERE rolname = current_user"):
            raise StackError("SEED_AGENTS_DATABASE_URL needs a user that may create roles: every service gets its own.")
        for service in services:
            role = role_of(service)
            # Two stacks that share a server start one after the other.
            async with connection.transaction():
                await connection.execute("SELECT pg_advisory_xact_lock(hashtext('seed-agents-roles'))")
                done += await _ensure_role(connection, url, service, role, passwords[role])
    finally:
        await connection.close()
    return done


async def _ensure_role(connection: Any, url: str, service: str, role: str, password: str) -> list[str]:
    done: list[str] = []
    exists = await connection.fetchval("SELECT 1 FROM pg_roles WHERE rolname = $1", role)
    if not exists:
        await _ddl(connection, "CREATE ROLE %I LOGIN NOINHERIT PASSWORD %L", role, password)
        done.append(f"created role {role}")
    elif not await _password_works(role_url(url, role, password)):
        await _ddl(connection, "ALTER ROLE %I PASSWORD %L", role, password)
        done.append(f"gave role {role} the password of this data directory; others that used it can no longer connect")
    owner = await connection.fetchval("SELECT nspowner::regrole::text FROM pg_namespace WHERE nspname = $1", service)
    if owner is None:
        # A user that may create roles but is no superuser has to be able to become a role to give it something.
        if not await connection.fetchval("SELECT rolsuper FROM pg_roles WHERE rolname = current_user"):
            await _ddl(connection, "GRANT %I TO CURRENT_USER", role)
        await _ddl(connection, "CREATE SCHEMA %I AUTHORIZATION %I", service, role)
        await _ddl(connection, "REVOKE ALL ON SCHEMA %I FROM PUBLIC", service)
        database = await connection.fetchval("SELECT current_database()")
        await _ddl(connection, "ALTER ROLE %I IN DATABASE %I SET search_path = %I", role, database, service)
        done.append(f"created schema {service}")
    elif owner != role:
        raise StackError(f"Schema {service} exists and belongs to {owner}, not to {role}.")
    return done


async def _ddl(connection: Any, template: str, *values: str) -> None:
    # The server quotes: DDL takes no parameters.
    slots = ", ".join(f"${number}::text" for number in range(2, len(values) + 2))
    await connection.execute(await connection.fetchval(f"SELECT format($1, {slots})", template, *values))


async def _password_works(url: str) -> bool:
    try:
        connection = await asyncpg.connect(url)
    except asyncpg.InvalidPasswordError:
        return False
    await connection.close()
    return True


async def _connect(url: str) -> Any:
    try:
        return await asyncpg.connect(url)
    except asyncpg.InvalidCatalogNameError:
        parts = urlsplit(url)
    server = await asyncpg.connect(urlunsplit(parts._replace(path="/postgres")))
    try:
        await _ddl(server, "CREATE DATABASE %I", parts.path.lstrip("/"))
    except asyncpg.DuplicateDatabaseError:
        pass
    finally:
        await server.close()
    return await asyncpg.connect(url)


if __name__ == "__main__":
    job = json.load(sys.stdin)
    try:
        print("\n".join(asyncio.run(prepare(job["url"], job["passwords"]))))
    except (StackError, OSError, asyncpg.PostgresError) as error:
        sys.exit(f"{type(error).__name__}: {error}")
