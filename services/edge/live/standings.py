"""What accounts are to the agents they watch, checked again when it may have changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from seed.sessions.v1 import access_pb2

from libs.errors import NotFound, SeedError
from services.edge.domain.audience import Standing
from services.edge.live.subscription import Subscription
from services.edge.live.tasks import Tasks
from services.edge.upstream import Peers

_CALL_S = 10.0
_PAUSE_S = 1.0
_AT_ONCE = 16


class Standings:
    """The standings behind all subscriptions but account keys; `lost(subscription)` ends one."""

    def __init__(self, peers: Peers, tasks: Tasks, lost: Callable[[Subscription], None]) -> None:
        self._peers, self._tasks, self._lost = peers, tasks, lost
        self._by_agent: dict[str, dict[str, dict[Subscription, None]]] = {}
        self._checking: set[str] = set()
        self._again: set[str] = set()
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def resolve(
        self, account: str, *, agent_id: str | None = None, session_id: str | None = None, noun: str = ""
    ) -> Standing:
        """The standing of `account` on an agent, or on the agent of a session. Raises NotFound when it has none."""
        request = access_pb2.ResolveAccessRequest(agent_id=agent_id, session_id=session_id, noun=noun)
        r = await self._peers.sessions.call(
            self._peers.access_stub.ResolveAccess, request, account=account, timeout_s=_CALL_S, retry=True
        )
        return Standing(account, r.agent_id, r.owner, r.role, r.member)

    def enter(self, sub: Subscription) -> None:
        """Watch over the standing of a subscription."""
        assert sub.standing is not None
        accounts = self._by_agent.setdefault(sub.standing.agent_id, {})
        accounts.setdefault(sub.account, {})[sub] = None

    def exit(self, sub: Subscription) -> None:
        """The opposite of enter()."""
        assert sub.standing is not None
        accounts = self._by_agent.get(sub.standing.agent_id, {})
        subs = accounts.get(sub.account, {})
        subs.pop(sub, None)
        if not subs:
            accounts.pop(sub.account, None)
        if not accounts:
            self._by_agent.pop(sub.standing.agent_id, None)

    def recheck(self, agent_id: str) -> None:
        """Access to an agent may have changed: ask for everybody who watches it."""
        if agent_id not in self._by_agent:
            return
        self._again.add(agent_id)
        if agent_id not in self._checking:
            self._checking.add(agent_id)
            self._tasks.spawn(self._recheck(agent_id))

    def recheck_all(self) -> None:
        """Changes may have been missed."""
        for agent_id in list(self._by_agent):
            self.recheck(agent_id)

    async def _recheck(self, agent_id: str) -> None:
        try:
            while agent_id in self._again:
                self._again.discard(agent_id)
                accounts = list(self._by_agent.get(agent_id, ()))
                await asyncio.gather(*(self._check(account, agent_id) for account in accounts))
        finally:
            self._checking.discard(agent_id)
            self._again.discard(agent_id)

    async def _check(self, account: str, agent_id: str) -> None:
        async with self._slots:
            try:
                found = await self.resolve(account, agent_id=agent_id)
            except NotFound:
                for sub in list(self._by_agent.get(agent_id, {}).get(account, ())):
                    self._lost(sub)
                return
            except SeedError:
                self._again.add(agent_id)
                await asyncio.sleep(_PAUSE_S)
                return
        for sub in self._by_agent.get(agent_id, {}).get(account, ()):
            sub.standing = found
