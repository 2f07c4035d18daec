"""The guarded client against servers on loopback, with names resolved by a scripted resolver."""

import asyncio
import gzip
import socket
from collections.abc import AsyncIterator

import httpx2
import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult

from libs.egress import BodyTooLarge, EgressPolicy, EgressRefused, GuardedTransport, Timeouts, client, read_body

LOCAL = EgressPolicy(allow_private=True)


class ScriptedResolver(AbstractResolver):
    """Answers each look-up of a name with the next of its addresses, the last one for ever."""

    def __init__(self, **answers: list[str]) -> None:
        self.answers = {name.replace("_", "."): list(addresses) for name, addresses in answers.items()}
        self.lookups: list[str] = []

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        self.lookups.append(host)
        known = self.answers[host]
        addresses = (known.pop(0) if len(known) > 1 else known[0]).split()
        return [
            ResolveResult(hostname=host, host=address, port=port, family=socket.AF_INET, proto=0, flags=0)
            for address in addresses
        ]

    async def close(self) -> None:
        return None


class Site:
    """A small web site on loopback."""

    def __init__(self) -> None:
        self.hits: list[tuple[str, str, dict[str, str]]] = []
        self.left = asyncio.Event()
        self.release = asyncio.Event()
        self.port = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.hits.append((request.method, request.host, dict(request.headers)))
        where = request.path
        if where == "/to":
            raise web.HTTPFound(request.query["url"])
        if where == "/big":
            return web.Response(body=b"x" * 10_000)
        if where == "/bomb":
            return web.Response(body=gzip.compress(b"0" * 1_000_000), headers={"content-encoding": "gzip"})
        if where == "/cookie":
            return web.Response(text=request.headers.get("cookie", "none"), headers={"set-cookie": "a=1"})
        if where == "/echo":
            return web.Response(body=await request.read(), headers={"x-type": request.headers.get("content-type", "")})
        out = web.StreamResponse()
        await out.prepare(request)
        await out.write(b"first")
        if where == "/torn":
            assert request.transport is not None
            request.transport.abort()
            return out
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.left.set()
            raise
        return out


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    made = Site()
    app = web.Application()
    app.router.add_route("*", "/{any:.*}", made.handle)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.port = runner.addresses[0][1]
    yield made
    await runner.cleanup()


def resolving(policy: EgressPolicy, resolver: AbstractResolver, **more: bool) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=GuardedTransport(policy, resolver=resolver), trust_env=False, **more)


async def test_a_request_goes_out_and_comes_back(site: Site) -> None:
    async with client(LOCAL, headers={"user-agent": "ours"}) as http:
        answer = await http.post(f"http://127.0.0.1:{site.port}/echo", json={"ü": 1})
    assert answer.status_code == 200 and answer.json() == {"ü": 1} and answer.headers["x-type"] == "application/json"
    assert site.hits[0][2]["User-Agent"] == "ours"


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "169.254.169.254", "0.0.0.0", "localhost"]
)
async def test_private_literals_and_names_are_refused(site: Site, host: str) -> None:
    async with client(EgressPolicy()) as http:
        with pytest.raises(EgressRefused) as raised:
            await http.get(f"http://{host}:{site.port}/echo")
    assert raised.value.request.url.port == site.port and site.hits == []


@pytest.mark.parametrize("host", ["2130706433", "127.1", "0x7f000001", "0177.0.0.1", "127.0.0.1."])
async def test_odd_spellings_of_loopback_reach_nothing(site: Site, host: str) -> None:
    async with client(EgressPolicy()) as http:
        with pytest.raises((httpx2.TransportError, httpx2.InvalidURL)):
            await http.get(f"http://{host}:{site.port}/echo")
    assert site.hits == []


@pytest.mark.parametrize("url", ["ftp://example.com/", "file:///etc/passwd", "/relative"])
async def test_only_http(url: str) -> None:
    async with client(LOCAL) as http:
        with pytest.raises(httpx2.UnsupportedProtocol):
            await http.get(url)


async def test_a_name_that_points_inside_is_refused(site: Site) -> None:
    resolver = ScriptedResolver(inside_example=["10.0.0.7 192.168.0.1"])
    async with resolving(EgressPolicy(), resolver) as http:
        with pytest.raises(EgressRefused, match=r"^inside\.example points to a private address$"):
            await http.get(f"http://inside.example:{site.port}/echo")
    assert site.hits == []


async def test_the_checked_address_is_the_one_connected_to(site: Site) -> None:
    """A name that changes between two look-ups gets one look-up a connection, and each is checked."""
    resolver = ScriptedResolver(rebinding_example=["127.0.0.1", "10.0.0.1"])
    policy = EgressPolicy(allowed_hosts=frozenset({"rebinding.example"}))
    async with resolving(policy, resolver) as http:
        assert (await http.get(f"http://rebinding.example:{site.port}/echo")).status_code == 200
    assert resolver.lookups == ["rebinding.example"]
    assert site.hits[0][1] == f"rebinding.example:{site.port}"


async def test_private_addresses_of_a_name_are_left_out() -> None:
    from libs.egress.transport import GuardedResolver

    guarded = GuardedResolver(EgressPolicy(), ScriptedResolver(mixed_example=["10.0.0.1 93.184.216.34 127.0.0.1"]))
    assert [result["host"] for result in await guarded.resolve("mixed.example", 80)] == ["93.184.216.34"]


async def test_each_redirect_is_checked_again(site: Site) -> None:
    policy = EgressPolicy(allowed_hosts=frozenset({"outside.example"}))
    resolver = ScriptedResolver(outside_example=["127.0.0.1"], inside_example=["127.0.0.1"])
    start = f"http://outside.example:{site.port}/to"
    async with resolving(policy, resolver, follow_redirects=True) as http:
        assert (await http.get(start, params={"url": "/echo"})).status_code == 200
        for target in ("http://127.0.0.1", "http://inside.example", "http://169.254.169.254"):
            with pytest.raises(EgressRefused):
                await http.get(start, params={"url": f"{target}:{site.port}/echo"})
    assert {host for _, host, _ in site.hits} == {f"outside.example:{site.port}"}


async def test_redirects_are_not_followed_unasked(site: Site) -> None:
    async with client(LOCAL) as http:
        assert (await http.get(f"http://127.0.0.1:{site.port}/to", params={"url": "/echo"})).status_code == 302


async def test_a_body_over_the_cap(site: Site) -> None:
    async with client(LOCAL, max_bytes=9_999) as http:
        with pytest.raises(BodyTooLarge) as raised:
            await http.get(f"http://127.0.0.1:{site.port}/big")
        assert raised.value.max_bytes == 9_999
    async with client(LOCAL, max_bytes=10_000) as http:
        assert len((await http.get(f"http://127.0.0.1:{site.port}/big")).content) == 10_000


async def test_a_body_that_unpacks_beyond_the_cap(site: Site) -> None:
    async with client(LOCAL, max_bytes=10_000) as http:
        async with http.stream("GET", f"http://127.0.0.1:{site.port}/bomb") as answer:
            with pytest.raises(BodyTooLarge):
                await read_body(answer, 100_000)
        async with http.stream("GET", f"http://127.0.0.1:{site.port}/bomb") as answer:
            assert len(await read_body(answer, 1_000_000)) == 1_000_000


async def test_a_silent_server_times_out(site: Site) -> None:
    async with client(LOCAL, Timeouts(read_s=0.05)) as http:
        with pytest.raises(httpx2.ReadTimeout):
            await http.get(f"http://127.0.0.1:{site.port}/slow")


async def test_the_whole_exchange_times_out(site: Site) -> None:
    async with client(LOCAL, Timeouts(total_s=0.05)) as http:
        with pytest.raises(httpx2.TimeoutException):
            await http.get(f"http://127.0.0.1:{site.port}/slow")


async def test_a_torn_body_is_an_error(site: Site) -> None:
    async with client(LOCAL) as http:
        with pytest.raises(httpx2.RemoteProtocolError):
            await http.get(f"http://127.0.0.1:{site.port}/torn")


async def test_leaving_a_stream_closes_its_connection(site: Site) -> None:
    async with client(LOCAL) as http:
        async with http.stream("GET", f"http://127.0.0.1:{site.port}/slow") as answer:
            assert await anext(answer.aiter_bytes()) == b"first"
        async with asyncio.timeout(5):
            await site.left.wait()


async def test_no_cookies_are_kept(site: Site) -> None:
    transport = GuardedTransport(LOCAL)
    for _ in range(2):
        request = httpx2.Request("GET", f"http://127.0.0.1:{site.port}/cookie")
        answer = await transport.handle_async_request(request)
        assert await answer.aread() == b"none"
    await transport.aclose()


async def test_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        async with client(LOCAL) as http:
            with pytest.raises(httpx2.ConnectError):
                await http.get(f"http://127.0.0.1:{taken.getsockname()[1]}/")


async def test_a_closed_client_stays_closed(site: Site) -> None:
    transport = GuardedTransport(LOCAL)
    await transport.aclose()
    with pytest.raises(RuntimeError, match="closed"):
        await transport.handle_async_request(httpx2.Request("GET", f"http://127.0.0.1:{site.port}/echo"))
