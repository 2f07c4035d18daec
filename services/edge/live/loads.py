"""Loads: bringing streams to the state of the owner, at first and after a gap."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from seed.runs.v1 import runs_pb2
from seed.sessions.v1 import sessions_pb2

from libs import telemetry
from libs.errors import NotFound, SeedError
from libs.protocol.limits import LIST_MAX
from services.edge import metrics
from services.edge.domain.frames import Frame
from services.edge.domain.replay import StoreAway
from services.edge.domain.run_stream import RunState
from services.edge.domain.session_stream import Snapshot
from services.edge.live import encode
from services.edge.live.subscription import Subscription
from services.edge.live.tasks import Tasks
from services.edge.upstream import Peers, Valkey

log = telemetry.get_logger("loads")

REORDER_S = 0.05
"""How long a missing event may still be on its way before it is fetched."""
_CALL_S = 15.0
_PAUSE_S = 1.0
_TAIL = 8
_QUICK_BYTES = 256 * 1024
"""What a shared load may put into the queues of all; more goes to each socket at its own pace."""


class Loads:
    """`subscriptions(key)` lists who watches a key; `lost(subscription)` ends one whose data is gone."""

    def __init__(
        self,
        peers: Peers,
        valkey: Valkey,
        tasks: Tasks,
        subscriptions: Callable[[str], Iterable[Subscription]],
        lost: Callable[[Subscription], None],
    ) -> None:
        self._peers, self._valkey, self._tasks = peers, valkey, tasks
        self._subscriptions, self._lost = subscriptions, lost
        self._filling: set[str] = set()

    # Sessions

    async def session(self, sub: Subscription, first: list[Frame]) -> None:
        """Load one session stream until it is live; `first` goes before the replay.

        Raises SeedError when the owner refuses or is away.
        """
        stream = sub.session
        assert stream is not None
        sub.busy = True
        replayed = False
        try:
            while sub.alive:
                stream.load()
                try:
                    r = await self._get_session(sub.ident, sub.account, stream.next_seq - 1)
                except SeedError as e:
                    if not replayed:
                        raise
                    if isinstance(e, NotFound):
                        self._lost(sub)
                    await asyncio.sleep(_PAUSE_S)
                    continue
                frames = [*first, *stream.replay(_snapshot(r))]
                first = []
                await sub.socket.send_all(frames)
                replayed = True
                mark = stream.mark()
                texts = await self._texts(r)
                if stream.go_live(mark, texts):
                    return
                await asyncio.sleep(REORDER_S)
                if not stream.loading:
                    return
        finally:
            sub.busy = False

    def fill_session(self, session_id: str) -> None:
        """Streams of a session miss something: fetch it once for all of them, unless it comes by itself."""
        if session_id not in self._filling:
            self._filling.add(session_id)
            self._tasks.spawn(self._fill_session(session_id))

    async def _fill_session(self, session_id: str) -> None:
        key = f"sessions/{session_id}"
        try:
            await asyncio.sleep(REORDER_S)
            while waiting := [s for s in self._subscriptions(key) if s.session and s.session.loading and not s.busy]:
                metrics.FILLS.inc()
                for sub in waiting:
                    if sub.session is not None:
                        sub.session.load()
                try:
                    await self._fill_all(session_id, waiting)
                except SeedError:
                    await asyncio.sleep(_PAUSE_S)
                else:
                    await asyncio.sleep(REORDER_S)
        finally:
            self._filling.discard(session_id)

    async def _fill_all(self, session_id: str, waiting: list[Subscription]) -> None:
        after = min(s.session.next_seq for s in waiting if s.session) - 1
        r = await self._first_answer(session_id, waiting, after)
        if r is None:
            return
        snapshot = _snapshot(r)
        small = sum(len(item.frame.data) for item in snapshot.appends) <= _QUICK_BYTES
        quick: list[tuple[Subscription, int]] = []
        for sub in waiting:
            stream = sub.session
            if not sub.alive or stream is None:
                continue
            if not (small and sub.socket.roomy()):
                self._tasks.spawn(self._reload(sub))
                continue
            for frame in stream.replay(snapshot):
                sub.socket.send(frame)
            quick.append((sub, stream.mark()))
        texts = await self._texts(r)
        for sub, mark in quick:
            if sub.alive and sub.session is not None:
                sub.session.go_live(mark, texts)

    async def _first_answer(self, session_id: str, waiting: list[Subscription], after: int) -> Any:
        # All of them may read it, so one answer serves all.
        for account in dict.fromkeys(s.account for s in waiting):
            try:
                return await self._get_session(session_id, account, after)
            except NotFound:
                for sub in waiting:
                    if sub.account == account:
                        self._lost(sub)
        return None

    async def _reload(self, sub: Subscription) -> None:
        while sub.alive:
            try:
                await self.session(sub, [])
                return
            except NotFound:
                self._lost(sub)
            except SeedError:
                await asyncio.sleep(_PAUSE_S)

    async def _get_session(self, session_id: str, account: str, after: int) -> Any:
        request = sessions_pb2.GetSessionRequest(session_id=session_id, after_seq=after, without_prompt=True)
        stub = self._peers.sessions_stub
        return await self._peers.sessions.call(stub.GetSession, request, account=account, timeout_s=_CALL_S, retry=True)

    async def _texts(self, r: sessions_pb2.GetSessionResponse) -> dict[str, str] | None:
        try:
            texts = await self._valkey.partials(r.session.id)
        except StoreAway:
            return None
        if texts:
            # Between a message's commit and the deletion of its text both can be seen.
            written = {_assistant_text(e.payload) for e in r.events[-_TAIL:]}
            texts = {name: text for name, text in texts.items() if text.strip() not in written}
        return texts

    # Runs

    async def run(self, sub: Subscription, first: list[Frame]) -> None:
        """Load one run stream until it is live; `first` goes before the replay. Raises SeedError as session()."""
        stream = sub.runs
        assert stream is not None
        sub.busy = True
        try:
            while sub.alive:
                stream.load()
                request = runs_pb2.ListRunsRequest(root_run_id=sub.ident, limit=LIST_MAX)
                r = await self._peers.runs.call(
                    self._peers.runs_stub.ListRuns, request, account=sub.account, timeout_s=_CALL_S, retry=True
                )
                states = [await self._state(run, sub) for run in r.runs]
                await sub.socket.send_all([*first, *stream.replay(states)])
                first = []
                if stream.go_live():
                    return
                await asyncio.sleep(REORDER_S)
        finally:
            sub.busy = False

    def fill_run(self, sub: Subscription) -> None:
        """A run stream misses something: fetch it."""
        if not sub.busy:
            sub.busy = True
            self._tasks.spawn(self._reload_run(sub))

    async def _reload_run(self, sub: Subscription) -> None:
        while sub.alive:
            await asyncio.sleep(REORDER_S)
            try:
                await self.run(sub, [])
                return
            except NotFound:
                self._lost(sub)
            except SeedError:
                await asyncio.sleep(_PAUSE_S)

    async def _state(self, run: runs_pb2.Run, sub: Subscription) -> RunState:
        change = encode.run_change(run, sub.ident)
        assert sub.runs is not None
        if run.kind == "agent":
            return RunState(run.id, change, (), 0)
        after = sub.runs.after(run.id)
        entries = await self._journal(run.id, sub.account, after)
        known = entries
        if not entries and after > 0:
            known = await self._journal(run.id, sub.account, 0)
        last_seq = known[-1].seq if known else 0
        return RunState(run.id, change, [encode.run_append(e, sub.ident) for e in entries], last_seq)

    async def _journal(self, run_id: str, account: str, after: int) -> Any:
        request = runs_pb2.GetRunJournalRequest(run_id=run_id, after_seq=after)
        stub = self._peers.runs_stub
        r = await self._peers.runs.call(stub.GetRunJournal, request, account=account, timeout_s=_CALL_S, retry=True)
        return r.entries


def _snapshot(r: sessions_pb2.GetSessionResponse) -> Snapshot:
    return Snapshot(encode.session_change(r.session), [encode.session_append(e) for e in r.events], r.last_seq)


def _assistant_text(payload: bytes) -> str | None:
    value = msgspec.json.decode(payload)
    return value.get("content", "").strip() if value.get("role") == "assistant" else None
