"""AuditService."""

from __future__ import annotations

from seed.audit.v1 import audit_pb2 as pb

from libs.errors import Forbidden
from libs.rpc import Caller
from libs.store.audit import Audit


class AuditApi:
    """Who changed the members and the public access of agents."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit

    async def ListAudit(self, request: pb.ListAuditRequest, caller: Caller) -> pb.ListAuditResponse:
        """A page, newest first."""
        if caller.service != "ops":
            raise Forbidden("This service may not make this call")
        return await self._audit.answer(request)
