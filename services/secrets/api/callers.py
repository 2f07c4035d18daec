"""Who may call what."""

from __future__ import annotations

from libs.audit import Actor
from libs.errors import Forbidden
from libs.rpc import Caller

OPS = "ops"


def acting(caller: Caller) -> str:
    """The account a call acts for. Raises Forbidden for a call that names none."""
    if not caller.account:
        raise Forbidden("This call needs an acting account")
    return caller.account


def actor(caller: Caller) -> Actor:
    """Who a call acts as. Raises Forbidden for a call that names no account."""
    return Actor(acting(caller), caller.signer, caller.service)


def only(caller: Caller, service: str) -> None:
    """Raises Forbidden unless `service` is calling."""
    if caller.service != service:
        raise Forbidden("This service may not make this call")
