"""AuditService."""

from __future__ import annotations

from seed.audit.v1 import audit_pb2 as pb

from libs.rpc import Caller
from libs.store.audit import Audit
from services.runs.api.callers import operator


class AuditApi:
    """What operators did to runs and workers."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit

    async def ListAudit(self, request: pb.ListAuditRequest, caller: Caller) -> pb.ListAuditResponse:
        """A page, newest first."""
        operator(caller)
        return await self._audit.answer(request)
