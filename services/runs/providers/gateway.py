"""The one door to every model provider."""

from __future__ import annotations

import asyncio
import importlib
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, cast

import httpx2
import msgspec

from libs.egress import EgressPolicy, GuardedTransport, Timeouts
from libs.process import settle_heap
from services.runs.providers.adapters import Adapter
from services.runs.providers.codex import CodexTransport
from services.runs.providers.contract import ConfigError, Message, ModelConfig, ProviderError, ReplyEvent, ToolSpec
from services.runs.providers.endpoint import Endpoint, WireApi, endpoint_of, hosts_of
from services.runs.providers.errors import from_exception, redacted
from services.runs.providers.wire import Exchange, ProviderTransport, Waiting

_ADAPTERS: Mapping[WireApi, str] = {
    "chat": "services.runs.providers.adapters.openai",
    "messages": "services.runs.providers.adapters.anthropic",
    "generateContent": "services.runs.providers.adapters.google",
    "codex": "services.runs.providers.adapters.codex",
}
_MAX_CACHED_MODELS = 256
# A model that thinks may be silent for minutes; the turn itself can be stopped at any time.
_TIMEOUTS = Timeouts(connect_s=10.0, read_s=600.0)


class ModelGateway:
    """Streams replies of models. One an event loop; it owns the connection pools, so close it with `aclose()`.

    `policy` says which addresses a base URL of `custom` and `ollama` may point to. `vendor_urls` replaces the pinned
    base URL of a provider type: a setting of the operator, never of a user, and allowed to point anywhere. `sleep`
    waits between attempts, in seconds.
    """

    def __init__(
        self,
        *,
        policy: EgressPolicy | None = None,
        vendor_urls: Mapping[str, str] | None = None,
        timeouts: Timeouts = _TIMEOUTS,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._vendor_urls = dict(vendor_urls or {})
        self._timeouts = timeouts
        self._waiting = Waiting(sleep)
        self._pinned = GuardedTransport(EgressPolicy(allowed_hosts=hosts_of(self._vendor_urls)))
        self._chosen = GuardedTransport(policy or EgressPolicy())
        self._models: OrderedDict[tuple[object, ...], Adapter] = OrderedDict()
        # Not sys.modules: it names a module before another thread has finished importing it.
        self._modules: dict[WireApi, Any] = {}

    def stream(
        self, config: ModelConfig, system: str, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> AbstractAsyncContextManager[AsyncIterator[ReplyEvent]]:
        """Send one request and iterate the events of its reply, the last one `ReplyDone`.

        Raises `ConfigError` for an unusable configuration and `ProviderError` for everything the provider does wrong,
        on entering the block or while iterating. A failure before the first byte (408, 409, 429, 5xx, no connection)
        has already been tried three times.
        """
        return _Reply(self, config, system, messages, tools)

    async def aclose(self) -> None:
        """Close every connection."""
        self._models.clear()
        await self._pinned.aclose()
        await self._chosen.aclose()

    async def _adapter(self, config: ModelConfig) -> Adapter:
        endpoint = endpoint_of(config, self._vendor_urls)
        key = (
            config.provider_type,
            config.model,
            endpoint.base_url,
            config.credential,
            config.provider_name if config.sign_in else "",
            config.reasoning_level,
            msgspec.json.encode(config.model_defaults, order="deterministic"),
        )
        adapter = self._models.get(key)
        if adapter is not None:
            self._models.move_to_end(key)
            return adapter
        module = await self._module_of(endpoint.wire_api)
        # The first model of a kind loads tables of tens of milliseconds.
        adapter = cast(
            Adapter, await asyncio.to_thread(module.build, config, endpoint.base_url, self._http(config, endpoint))
        )
        self._models[key] = adapter
        if len(self._models) > _MAX_CACHED_MODELS:
            self._models.popitem(last=False)
        return adapter

    async def _module_of(self, wire_api: WireApi) -> Any:
        loaded = self._modules.get(wire_api)
        if loaded is None:
            # These libraries take seconds to import: not on the event loop.
            loaded = self._modules[wire_api] = await asyncio.to_thread(_load, _ADAPTERS[wire_api])
        return loaded

    def _http(self, config: ModelConfig, endpoint: Endpoint) -> httpx2.AsyncClient:
        shared = self._chosen if endpoint.chosen_by_user else self._pinned
        transport = ProviderTransport(shared, config.model_defaults, self._waiting)
        return httpx2.AsyncClient(
            transport=transport if config.sign_in is None else CodexTransport(transport, config.sign_in),
            timeout=self._timeouts.for_httpx(),
            trust_env=False,
        )


class _Reply(AbstractAsyncContextManager[AsyncIterator[ReplyEvent]]):
    def __init__(
        self,
        gateway: ModelGateway,
        config: ModelConfig,
        system: str,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
    ) -> None:
        self._gateway = gateway
        self._config = config
        self._request = (system, messages, tools)
        self._exchange = Exchange()
        self._opened: AbstractAsyncContextManager[Any] | None = None

    async def __aenter__(self) -> AsyncIterator[ReplyEvent]:
        adapter = await self._gateway._adapter(self._config)
        from services.runs.providers.reply import reply_events

        opened = adapter.open(*self._request)
        try:
            with self._exchange.collecting():
                response = await opened.__aenter__()
        except BaseException as error:
            await self._exchange.close()
            if not isinstance(error, Exception):
                raise
            raise self._seen(error) from error
        self._opened = opened
        return self._guarded(reply_events(response))

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        opened, self._opened = self._opened, None
        if opened is None:
            return
        await self._exchange.close()
        try:
            await opened.__aexit__(kind, error, trace)
        except Exception as closing:
            # The reply is over either way; only what the block itself raised matters, and it goes on by itself.
            if closing is error or kind is not None:
                return
            raise self._seen(closing) from closing

    async def _guarded(self, events: AsyncIterator[ReplyEvent]) -> AsyncGenerator[ReplyEvent, None]:
        try:
            async for event in events:
                yield event
        except Exception as error:
            raise self._seen(error) from error

    def _seen(self, error: Exception) -> ProviderError | ConfigError:
        seen = from_exception(error)
        return redacted(seen, self._config.credential) if isinstance(seen, ProviderError) else seen


def _load(name: str) -> Any:
    module = importlib.import_module(name)
    settle_heap()
    return module
