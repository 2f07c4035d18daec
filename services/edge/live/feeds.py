"""Account keys: everything of the agents an account owns or has joined."""

from __future__ import annotations

import asyncio

from seed.sessions.v1 import access_pb2

from libs import telemetry
from libs.errors import SeedError
from libs.events import account_subject, agent_subject
from services.edge.live.listeners import Listeners
from services.edge.live.subscription import Socket
from services.edge.live.tasks import Tasks
from services.edge.upstream import Peers

log = telemetry.get_logger("feeds")

_CALL_S = 10.0
_PAUSE_S = 1.0


class Feed:
    """The sockets that watch one account, and the agents it has joined with the role there."""

    def __init__(self, account: str) -> None:
        self.account = account
        self.sockets: dict[Socket, None] = {}
        self.joined: dict[str, access_pb2.Membership] = {}
        self.lock = asyncio.Lock()
        self.coming = 0
        self.listening = False
        self.loaded = False
        self.refreshing = False
        self.stale = False


class Feeds:
    """All feeds of this edge."""

    def __init__(self, peers: Peers, tasks: Tasks, listeners: Listeners) -> None:
        self._peers, self._tasks, self._listeners = peers, tasks, listeners
        self._by_account: dict[str, Feed] = {}
        self._by_agent: dict[str, dict[Feed, None]] = {}

    def owner(self, account: str) -> Feed | None:
        """The feed of an account that somebody watches."""
        return self._by_account.get(account)

    def members(self, agent_id: str) -> list[Feed]:
        """The feeds of accounts that have joined an agent."""
        return list(self._by_agent.get(agent_id, ()))

    async def join(self, account: str, socket: Socket) -> None:
        """Let `socket` watch `account`; in effect when this returns. Raises SeedError when sessions cannot be asked."""
        feed = self._by_account.setdefault(account, Feed(account))
        feed.coming += 1
        try:
            async with feed.lock:
                if not feed.listening:
                    await self._listeners.acquire(account_subject(account))
                    feed.listening = True
                if not feed.loaded:
                    await self._update(feed)
                    feed.loaded = True
            feed.sockets[socket] = None
        finally:
            feed.coming -= 1
            self._end_unwatched(feed)

    def leave(self, account: str, socket: Socket) -> None:
        """`socket` no longer watches `account`."""
        feed = self._by_account.get(account)
        if feed is not None:
            feed.sockets.pop(socket, None)
            self._end_unwatched(feed)

    def refresh(self, account: str) -> None:
        """The account's memberships have changed."""
        feed = self._by_account.get(account)
        if feed is None:
            return
        feed.stale = True
        if not feed.refreshing:
            feed.refreshing = True
            self._tasks.spawn(self._refresh(feed))

    def refresh_all(self) -> None:
        """Changes may have been missed."""
        for account in list(self._by_account):
            self.refresh(account)

    async def _refresh(self, feed: Feed) -> None:
        try:
            while feed.stale and self._by_account.get(feed.account) is feed:
                feed.stale = False
                try:
                    async with feed.lock:
                        if feed.listening:
                            await self._update(feed)
                except SeedError:
                    feed.stale = True
                    await asyncio.sleep(_PAUSE_S)
        finally:
            feed.refreshing = False
            self._end_unwatched(feed)

    async def _update(self, feed: Feed) -> None:
        stub = self._peers.access_stub
        request = access_pb2.ListMembershipsRequest()
        r = await self._peers.sessions.call(
            stub.ListMemberships, request, account=feed.account, timeout_s=_CALL_S, retry=True
        )
        found = {m.agent_id: m for m in r.memberships}
        for agent_id in feed.joined.keys() - found.keys():
            self._drop(feed, agent_id)
        for agent_id, membership in found.items():
            if agent_id not in feed.joined:
                await self._listeners.acquire(agent_subject(membership.owner, agent_id))
                self._by_agent.setdefault(agent_id, {})[feed] = None
            feed.joined[agent_id] = membership

    def _drop(self, feed: Feed, agent_id: str) -> None:
        membership = feed.joined.pop(agent_id)
        watching = self._by_agent[agent_id]
        watching.pop(feed, None)
        if not watching:
            del self._by_agent[agent_id]
        self._listeners.release(agent_subject(membership.owner, agent_id))

    def _end_unwatched(self, feed: Feed) -> None:
        if feed.sockets or feed.coming or self._by_account.get(feed.account) is not feed or feed.lock.locked():
            return
        del self._by_account[feed.account]
        for agent_id in list(feed.joined):
            self._drop(feed, agent_id)
        if feed.listening:
            feed.listening = False
            self._listeners.release(account_subject(feed.account))
