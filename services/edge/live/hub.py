"""The subscriptions of all sockets, and what each event means to them (websocket.md, sections 3 to 6)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from seed.events.v1 import events_pb2 as ev
from seed.runs.v1 import runs_pb2
from seed.sessions.v1 import sessions_pb2

from libs import telemetry
from libs.errors import Invalid, NotFound, SeedError, TooMany
from libs.events import Bus, agent_subject, tree_subjects
from services.edge.domain.audience import Standing, hint_account, member_role, parse_key, role_now
from services.edge.domain.frames import Frame
from services.edge.domain.run_stream import RunStream
from services.edge.domain.seq import NOT_A_SEQ, after_seq
from services.edge.domain.session_stream import SessionStream
from services.edge.live import encode
from services.edge.live.feeds import Feed, Feeds
from services.edge.live.listeners import Listeners
from services.edge.live.loads import Loads
from services.edge.live.standings import Standings
from services.edge.live.subscription import Socket, Subscription
from services.edge.live.tasks import Tasks
from services.edge.upstream import Peers, Valkey

log = telemetry.get_logger("hub")

_REMEMBERED = 65_536
_HEADS_AT_ONCE = 1_000
_CALL_S = 10.0
_IN_TRANSIT_S = 0.25
"""How far a head may be ahead of an event that is on its way."""
_CHECK_EVERY = 12
"""All access is checked again once in so many rounds of heads, in case a hint was lost."""

_ACCESS_REASONS = frozenset({"agent-collaborators-changed", "agent-invites-changed", "agent-deleted"})


class Hub:
    """Everything live on this edge. run() must run beside it.

    `limit` is the most subscriptions a socket may have, `heads_interval_s` how often heads are compared.
    """

    def __init__(
        self, peers: Peers, valkey: Valkey, bus: Bus, tasks: Tasks, *, limit: int, heads_interval_s: float
    ) -> None:
        self._peers, self._tasks, self._limit, self._interval_s = peers, tasks, limit, heads_interval_s
        self._listeners = Listeners(bus, tasks, self.on_message)
        self._feeds = Feeds(peers, tasks, self._listeners)
        self._standings = Standings(peers, tasks, self.cut)
        self._subs: dict[str, dict[Subscription, None]] = {}
        self._loads = Loads(peers, valkey, tasks, lambda key: list(self._subs.get(key, ())), self.cut)
        self._seen: dict[str, None] = {}
        self._versions: dict[Hashable, int] = {}
        self._routes: dict[str, Callable[[ev.Event], None]] = {
            "session_appended": self._session_appended,
            "session_partial": self._session_partial,
            "session_changed": self._session_changed,
            "agent_changed": self._agent_changed,
            "account_hint": self._account_hint,
            "run_changed": self._run_changed,
            "run_appended": self._run_appended,
            "run_partial": self._run_partial,
        }

    # Subscribing

    async def subscribe(self, socket: Socket, account: str, action: dict[str, Any]) -> None:
        """Serve a verified Subscribe. Raises SeedError with the public text when it is refused."""
        kind, ident = parse_key(action.get("key"), account)
        key = f"{kind}/{ident}"
        old = socket.subscriptions.get(key)
        if old is None and len(socket.subscriptions) >= self._limit:
            raise TooMany("Too many subscriptions")
        if kind == "account":
            await self._feeds.join(account, socket)
            socket.subscriptions[key] = Subscription(socket, account, key, kind, ident)
            socket.account = account
            socket.send(encode.subscribed(key, account))
            return
        standing = await self._standing(kind, ident, account)
        sub = Subscription(socket, account, key, kind, ident, standing)
        if kind != "agents":
            self._open_stream(sub, _after(action))
        await self._listen(_subjects(kind, standing))
        self._enter(sub, old)
        try:
            await self._begin(sub)
        except BaseException:
            self._exit(sub)
            if old is not None and old.alive:
                self._subs.setdefault(key, {})[old] = None
                self._catch_up(old)
            raise
        if old is not None:
            self._exit(old)
        if sub.alive:
            socket.subscriptions[key] = sub
        else:
            socket.subscriptions.pop(key, None)

    def unsubscribe(self, socket: Socket, account: str, action: dict[str, Any]) -> None:
        """Serve a verified Unsubscribe; a key that is not watched is no fault. Raises Invalid for what is no key."""
        key = "/".join(parse_key(action.get("key"), account))
        sub = socket.subscriptions.get(key)
        if sub is not None:
            self.cut(sub)
        socket.send(encode.unsubscribed(key))

    async def _listen(self, subjects: Sequence[str]) -> None:
        held: list[str] = []
        try:
            for subject in subjects:
                await self._listeners.acquire(subject)
                held.append(subject)
        except BaseException:
            for subject in held:
                self._listeners.release(subject)
            raise

    async def _standing(self, kind: str, ident: str, account: str) -> Standing:
        if kind == "sessions":
            return await self._standings.resolve(account, session_id=ident)
        if kind == "agents":
            return await self._standings.resolve(account, agent_id=ident)
        request = runs_pb2.GetRunRequest(run_id=ident)
        r = await self._peers.runs.call(
            self._peers.runs_stub.GetRun, request, account=account, timeout_s=_CALL_S, retry=True
        )
        if not r.run.HasField("agent_id"):
            raise NotFound("Run not found")
        return await self._standings.resolve(account, agent_id=r.run.agent_id, noun="Run")

    def _open_stream(self, sub: Subscription, after: int) -> None:
        if sub.kind == "sessions":
            ident = sub.ident
            sub.session = SessionStream(
                sub.socket.send, lambda name, text: encode.session_piece(ident, name, text), after_seq=after
            )
        else:
            sub.runs = RunStream(sub.socket.send, after_seq=after)

    async def _begin(self, sub: Subscription) -> None:
        # The socket is bound before anything of the key is sent; a refused frame binds nothing.
        first = [encode.subscribed(sub.key, sub.account)]
        if sub.session is not None:
            await self._loads.session(sub, first)
        elif sub.runs is not None:
            await self._loads.run(sub, first)
        else:
            sub.socket.send(first[0])
        sub.socket.account = sub.account

    def _enter(self, sub: Subscription, old: Subscription | None) -> None:
        subs = self._subs.setdefault(sub.key, {})
        if old is not None:
            subs.pop(old, None)
        subs[sub] = None
        self._standings.enter(sub)

    def _exit(self, sub: Subscription) -> None:
        if not sub.alive:
            return
        sub.end()
        if sub.standing is None:
            self._feeds.leave(sub.account, sub.socket)
            return
        subs = self._subs.get(sub.key, {})
        subs.pop(sub, None)
        if not subs:
            self._subs.pop(sub.key, None)
        self._standings.exit(sub)
        for subject in _subjects(sub.kind, sub.standing):
            self._listeners.release(subject)

    def cut(self, sub: Subscription) -> None:
        """Silently stop delivery: what it watched is gone or no longer readable."""
        self._exit(sub)
        if sub.socket.subscriptions.get(sub.key) is sub:
            del sub.socket.subscriptions[sub.key]

    def leave(self, socket: Socket) -> None:
        """The socket is closed."""
        for sub in list(socket.subscriptions.values()):
            self._exit(sub)
        socket.subscriptions.clear()

    def dropped(self, socket: Socket, frame: Frame) -> None:
        """A partial was left out for a slow socket: its block is not to be continued with a hole."""
        if not isinstance(frame.slot, tuple):
            return
        key, partial_id = frame.slot
        sub = socket.subscriptions.get(key)
        if sub is not None and sub.session is not None:
            sub.session.broke(partial_id)

    # Events

    def on_message(self, _subject: str, body: bytes) -> None:
        """Handle one event from the bus."""
        event = ev.Event.FromString(body)
        if event.id in self._seen:
            return
        _remember(self._seen, event.id, None)
        route = self._routes.get(event.WhichOneof("body") or "")
        if route is not None:
            route(event)

    def _newer(self, kind: str, ident: str, version: int) -> bool:
        if version <= self._versions.get((kind, ident), -1):
            return False
        _remember(self._versions, (kind, ident), version)
        return True

    def _watching(self, event: ev.Event) -> list[Feed]:
        feeds = self._feeds.members(event.agent_id) if event.agent_id else []
        owner = self._feeds.owner(event.account)
        return [owner, *feeds] if owner is not None else feeds

    def _spread(self, event: ev.Event, frame: Frame, done: Iterable[Socket]) -> None:
        done = set(done)
        for feed in self._watching(event):
            for socket in feed.sockets:
                if socket not in done:
                    done.add(socket)
                    socket.send(frame)

    def _session_appended(self, event: ev.Event) -> None:
        e = event.session_appended.event
        subs = self._subs.get(f"sessions/{e.session_id}", {})
        if not subs and not self._watching(event):
            return
        item = encode.session_append(e)
        for sub in list(subs):
            if sub.session is not None and not sub.session.append(item):
                self._loads.fill_session(e.session_id)
        self._spread(event, item.frame, (s.socket for s in subs))

    def _session_partial(self, event: ev.Event) -> None:
        p = event.session_partial
        subs = self._subs.get(f"sessions/{p.session_id}", {})
        if not subs and not self._watching(event):
            return
        item = encode.session_partial(p)
        for sub in list(subs):
            if sub.session is not None:
                sub.session.partial(item)
        self._spread(event, item.frame, (s.socket for s in subs))

    def _session_changed(self, event: ev.Event) -> None:
        s = event.session_changed.session
        subs = self._subs.get(f"sessions/{s.id}", {})
        agents = self._subs.get(f"agents/{s.agent_id}", {})
        if not subs and not agents and not self._watching(event):
            return
        item = encode.session_change(s)
        for sub in list(subs):
            if sub.session is not None:
                sub.session.change(item)
        if self._newer("session", s.id, s.version):
            done = {sub.socket for sub in subs}
            for sub in list(agents):
                if sub.socket not in done:
                    done.add(sub.socket)
                    sub.socket.send(item.frame)
            self._spread(event, item.frame, done)

    def _agent_changed(self, event: ev.Event) -> None:
        a = event.agent_changed.agent
        if not self._newer("agent", a.id, a.version):
            return
        frames: dict[str, Frame] = {}
        done: set[Socket] = set()

        def send(socket: Socket, role: str) -> None:
            if socket in done:
                return
            done.add(socket)
            if role not in frames:
                frames[role] = encode.agent_change(a, role)
            socket.send(frames[role])

        for sub in list(self._subs.get(f"agents/{a.id}", ())):
            if sub.standing is not None:
                role = role_now(sub.standing, public_read=a.public_read, public_chat=a.public_chat)
                if role is not None:
                    send(sub.socket, role)
        for feed in self._watching(event):
            joined = feed.joined.get(a.id)
            role = member_role(joined.role, public_chat=a.public_chat) if joined else "owner"
            for socket in list(feed.sockets):
                send(socket, role)

    def _account_hint(self, event: ev.Event) -> None:
        hint = event.account_hint
        frames: dict[str, Frame] = {}
        done: set[Socket] = set()

        def send(socket: Socket, account: str) -> None:
            if socket in done:
                return
            done.add(socket)
            if account not in frames:
                frames[account] = encode.account_hint(account, event.agent_id, hint)
            socket.send(frames[account])

        if hint.accounts:
            feeds = [f for f in map(self._feeds.owner, hint.accounts) if f is not None]
        else:
            feeds = self._watching(event)
            for sub in list(self._subs.get(f"agents/{event.agent_id}", ())):
                if sub.standing is not None:
                    send(sub.socket, hint_account(sub.standing))
        for feed in feeds:
            for socket in list(feed.sockets):
                send(socket, feed.account)
        self._react(event)

    def _react(self, event: ev.Event) -> None:
        hint = event.account_hint
        if hint.reason in _ACCESS_REASONS:
            self._standings.recheck(event.agent_id)
            for account in hint.accounts:
                self._feeds.refresh(account)
            for feed in self._feeds.members(event.agent_id):
                self._feeds.refresh(feed.account)
        elif hint.reason == "session-deleted":
            for sub in list(self._subs.get(f"sessions/{hint.session_id}", ())):
                self.cut(sub)

    def _run_changed(self, event: ev.Event) -> None:
        r = event.run_changed.run
        subs = self._subs.get(f"runs/{r.root_run_id}", {})
        if not subs and not self._watching(event):
            return
        item = encode.run_change(r, r.root_run_id)
        for sub in list(subs):
            if sub.runs is not None:
                sub.runs.change(r.id, item)
        if self._newer("run", r.id, r.version):
            self._spread(event, item.frame, (s.socket for s in subs))

    def _run_appended(self, event: ev.Event) -> None:
        root, entry = event.run_appended.root_run_id, event.run_appended.entry
        subs = self._subs.get(f"runs/{root}", {})
        item = encode.run_append(entry, root)
        for sub in list(subs):
            if sub.runs is not None and not sub.runs.append(entry.run_id, item):
                self._loads.fill_run(sub)
        self._spread(event, item.frame, (s.socket for s in subs))

    def _run_partial(self, event: ev.Event) -> None:
        p = event.run_partial
        subs = self._subs.get(f"runs/{p.root_run_id}", {})
        frame = encode.run_partial(p)
        for sub in list(subs):
            if sub.runs is not None:
                sub.runs.partial(p.run_id, frame)
        self._spread(event, frame, (s.socket for s in subs))

    # Catching up

    async def restored(self) -> None:
        """The bus is back: compare everything now."""
        self._feeds.refresh_all()
        self._standings.recheck_all()
        for key in list(self._subs):
            if key.startswith("runs/"):
                for sub in list(self._subs.get(key, ())):
                    self._catch_up(sub)
        await self._compare(0)

    async def run(self) -> None:
        """Compare watched sessions with their owner's state, again and again; never returns."""
        rounds = 0
        while True:
            await asyncio.sleep(self._interval_s)
            rounds += 1
            try:
                await self._compare(_IN_TRANSIT_S)
                if rounds % _CHECK_EVERY == 0:
                    self._standings.recheck_all()
                    self._feeds.refresh_all()
            except Exception as e:  # the next round may do better
                log.error("comparing heads failed", error=type(e).__name__, exc_info=e)

    async def _compare(self, grace_s: float) -> None:
        idents = [key.partition("/")[2] for key in self._subs if key.startswith("sessions/")]
        for at in range(0, len(idents), _HEADS_AT_ONCE):
            asked = idents[at : at + _HEADS_AT_ONCE]
            request = sessions_pb2.GetHeadsRequest(session_ids=asked)
            stub = self._peers.sessions_stub
            try:
                r = await self._peers.sessions.call(stub.GetHeads, request, timeout_s=_CALL_S)
            except SeedError:
                return
            heads = {head.session_id: head for head in r.heads}
            ahead = [h for h in heads.values() if self._behind(h)]
            if ahead and grace_s:
                await asyncio.sleep(grace_s)
            for head in ahead:
                for sub in self._behind(head):
                    self._catch_up(sub)
            for ident in set(asked) - heads.keys():
                for sub in list(self._subs.get(f"sessions/{ident}", ())):
                    if not sub.busy:
                        self.cut(sub)

    def _behind(self, head: sessions_pb2.SessionHead) -> list[Subscription]:
        subs = self._subs.get(f"sessions/{head.session_id}", {})
        return [
            s for s in subs if s.session and not s.session.loading and s.session.behind(head.last_seq, head.version)
        ]

    def _catch_up(self, sub: Subscription) -> None:
        if sub.session is not None:
            sub.session.load()
            self._loads.fill_session(sub.ident)
        elif sub.runs is not None:
            self._loads.fill_run(sub)


def _subjects(kind: str, standing: Standing) -> Sequence[str]:
    """What to listen on for a key."""
    own = agent_subject(standing.owner, standing.agent_id)
    return (own, *tree_subjects(standing.owner)) if kind == "runs" else (own,)


def _after(action: dict[str, Any]) -> int:
    after = after_seq(action["afterSeq"]) if "afterSeq" in action else 0
    if after == NOT_A_SEQ:
        raise Invalid("afterSeq must be a non-negative integer")
    return after


def _remember(memory: dict[Any, Any], key: Hashable, value: Any) -> None:
    memory.pop(key, None)
    memory[key] = value
    if len(memory) > _REMEMBERED:
        del memory[next(iter(memory))]
