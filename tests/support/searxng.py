"""A fake SearXNG over real HTTP."""

from __future__ import annotations

from typing import Any

from aiohttp import web


class FakeSearxng:
    """Answers searches with `bodies`, one after the other; the last stays."""

    def __init__(self) -> None:
        self.bodies: list[Any] = [{"results": []}]
        self.asked: list[dict[str, str]] = []
        self.status = 200
        self.url = ""
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Serve on a free loopback port."""
        app = web.Application()
        app.router.add_get("/search", self._search)
        self._runner = web.AppRunner(app, shutdown_timeout=0.2)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        """Stop serving."""
        assert self._runner is not None
        await self._runner.cleanup()

    async def _search(self, request: web.Request) -> web.Response:
        self.asked.append(dict(request.query))
        body = self.bodies.pop(0) if len(self.bodies) > 1 else self.bodies[0]
        return web.json_response(body, status=self.status)
