"""Who may call what only operators may."""

from __future__ import annotations

from libs.audit import Actor
from libs.errors import Forbidden
from libs.rpc import Caller

OPS = "ops"


def operator(caller: Caller) -> Actor:
    """Who a call of an operator acts as, in the audit. Raises Forbidden for all other callers."""
    if caller.service != OPS:
        raise Forbidden("This call is for operators")
    return Actor("", "", caller.service)
