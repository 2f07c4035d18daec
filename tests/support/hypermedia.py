"""A fake HM server over real HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from aiohttp import web

from libs import wire

Answer = Callable[[dict[str, str]], Any]
"""What a key of the API answers to the parameters of a request, not wrapped yet."""


class FakeHypermediaServer:
    """Takes blobs as an HM server does, or answers `status` and `body`; `gate` holds answers back until it is set.

    `GET /api/<Key>` answers what `answers[Key]` gives, ListEvents from `feed`: all events, newest first.
    """

    def __init__(self) -> None:
        self.status, self.body = 200, b""
        self.published: list[list[dict[str, Any]]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.waiting = 0
        self.url = ""
        self.feed: list[Any] = []
        self.feeds: dict[str, list[Any]] = {}
        """Feeds that only these accounts see, in place of `feed`."""
        self.asked: list[tuple[str, dict[str, str]]] = []
        """Keys and parameters of all GET requests."""
        self.answers: dict[str, Answer] = {"ListEvents": self._events}
        self.slow: set[str] = set()
        """Accounts whose feed is never answered."""
        self._runner: web.AppRunner | None = None

    def answer(self, status: int = 200, body: bytes = b"") -> None:
        """What to answer from now on; an empty body is the proper one. Forgets what was published."""
        self.status, self.body, self.published = status, body, []

    async def start(self, port: int = 0) -> None:
        """Serve on a loopback port, a free one unless it is given."""
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post("/api/PublishBlobs", self._publish)
        app.router.add_get("/api/{key}", self._get)
        self._runner = web.AppRunner(app, shutdown_timeout=0.2)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", port).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        """Stop serving; start() with the same port serves again."""
        assert self._runner is not None
        await self._runner.cleanup()

    def happens(self, *events: Any) -> None:
        """Events that the server observes now, one after the other."""
        for event in events:
            self.feed.insert(0, event)

    def polls(self, account: str) -> list[dict[str, str]]:
        """The parameters of the account's requests for events."""
        return [asked for key, asked in self.asked if key == "ListEvents" and asked.get("currentAccount") == account]

    async def _publish(self, request: web.Request) -> web.Response:
        assert request.content_type == "application/cbor"
        body = await request.read()
        self.waiting += 1
        await self.gate.wait()
        self.waiting -= 1
        if self.status != 200 or self.body:
            return web.Response(status=self.status, body=self.body)
        blobs = wire.decode(body)["blobs"]
        self.published.append(blobs)
        return web.json_response({"json": {"cids": [blob["cid"] for blob in blobs]}, "meta": {}})

    async def _get(self, request: web.Request) -> web.Response:
        key, parameters = request.match_info["key"], dict(request.query)
        self.asked.append((key, parameters))
        await self.gate.wait()
        if parameters.get("currentAccount") in self.slow:
            await asyncio.Event().wait()
        if self.status != 200 or self.body:
            return web.Response(status=self.status, body=self.body)
        if key not in self.answers:
            return web.json_response({"error": f"no {key}"}, status=404)
        return web.Response(
            text=json.dumps({"json": self.answers[key](parameters), "meta": {"values": {}}}),
            content_type="application/json",
        )

    def _events(self, parameters: dict[str, str]) -> Any:
        events = self.feeds.get(parameters.get("currentAccount", ""), self.feed)
        # A token counts from the oldest event, so that what is observed meanwhile moves no page.
        start = len(events) - int(parameters["pageToken"]) if parameters.get("pageToken") else 0
        end = start + int(parameters["pageSize"])
        return {"events": events[start:end], "nextPageToken": str(len(events) - end) if end < len(events) else ""}
