"""Listing the models of a provider: what is asked, and how the answer is read (actions.md, provider table)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import quote, urlsplit, urlunsplit

import msgspec

from libs.errors import BadGateway, Invalid
from libs.protocol.models import PROVIDERS, ModelList
from services.secrets.domain.providers import Providers, Usable
from services.secrets.domain.text import label

_SENDABLE: Final = re.compile(r"[\x20-\x7e]*")


@dataclass(frozen=True, slots=True)
class Model:
    """One model of a provider."""

    id: str
    name: str


SUBSCRIPTION_MODELS: Final = (
    Model("gpt-5.6-sol", "GPT-5.6 Sol"),
    Model("gpt-5.6-terra", "GPT-5.6 Terra"),
    Model("gpt-5.6-luna", "GPT-5.6 Luna"),
    Model("gpt-5.5", "GPT-5.5"),
    Model("gpt-5.4", "GPT-5.4"),
)
"""What a ChatGPT sign-in offers: its backend lists no models."""


@dataclass(frozen=True, slots=True)
class ModelsRequest:
    """A GET for the list of models. `by_operator`: the URL is the vendor's or the operator's, not an account's.

    URL and headers hold the key: neither is shown in a `repr`.
    """

    url: str
    headers: Mapping[str, str]
    by_operator: bool

    def __repr__(self) -> str:
        return "ModelsRequest()"


class Unreachable(Exception):
    """No answer. The text is a cause fit for the public: it holds neither URL nor key."""


class Fetch(Protocol):
    """How the world outside is asked."""

    async def get(self, request: ModelsRequest) -> tuple[int, bytes]:
        """HTTP status and body. Raises Unreachable."""
        ...


class ModelLists:
    """Asks providers for their models. `vendor_urls`: base URL by provider type, in place of the vendors' own."""

    def __init__(self, providers: Providers, fetch: Fetch, vendor_urls: Mapping[str, str]) -> None:
        self._providers, self._fetch, self._vendor_urls = providers, fetch, vendor_urls

    async def list(self, account: str, provider: str) -> list[Model]:
        """Models of a provider in its order. Raises Invalid, NotFound, BadGateway."""
        record = await self._providers.find(account, label(provider, "Model provider"))
        if record.subscription:
            return list(SUBSCRIPTION_MODELS)
        usable = await self._providers.open(account, record)
        how = usable.kind.model_list
        subject = f"{PROVIDERS[how].title} models"
        try:
            status, body = await self._fetch.get(models_request(usable, self._vendor_urls))
        except Unreachable as e:
            raise BadGateway(f"{subject} request failed: {e}") from None
        if not 200 <= status < 300:
            raise BadGateway(f"{subject} request failed: HTTP {status}")
        models = read_models(how, body)
        if models is None:
            raise BadGateway(f"{subject} response is invalid")
        return models


def models_request(usable: Usable, vendor_urls: Mapping[str, str]) -> ModelsRequest:
    """The request that lists a provider's models. Raises Invalid for a key no header can carry."""
    if not _SENDABLE.fullmatch(usable.api_key):
        raise Invalid(f"{usable.type} API key contains an invalid character")
    own = usable.base_url
    given = vendor_urls.get(usable.type)
    base = own or given or usable.kind.base_url or ""
    # Without an operator's word the default of a type that accounts may point anywhere is as good as an account's.
    by_operator = not own and (given is not None or not usable.kind.own_base_url)
    match usable.kind.model_list:
        case "openai":
            headers = {"authorization": f"Bearer {usable.api_key}"} if usable.api_key else {}
            return ModelsRequest(joined(base, "models"), headers, by_operator)
        case "anthropic":
            headers = {"x-api-key": usable.api_key, "anthropic-version": "2023-06-01"}
            return ModelsRequest(joined(base, "v1/models"), headers, by_operator)
        case "google":
            return ModelsRequest(joined(base, "models", f"key={quote(usable.api_key, safe='')}"), {}, by_operator)


def joined(base: str, path: str, query: str = "") -> str:
    """A base URL with a path below it; trailing slashes, query and fragment of the base are dropped."""
    parts = urlsplit(base)
    return urlunsplit((parts.scheme, parts.netloc, f"{parts.path.rstrip('/')}/{path}", query, ""))


def read_models(how: ModelList, body: bytes) -> list[Model] | None:
    """The models in an answer, rows that make no sense left out; None when it is no list of models at all."""
    try:
        answer = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    rows = answer.get("models" if how == "google" else "data") if isinstance(answer, dict) else None
    if not isinstance(rows, list):
        return None
    read = _READERS[how]
    return [model for row in rows if isinstance(row, dict) and (model := read(row)) is not None]


def _openai(row: dict[str, Any]) -> Model | None:
    model_id = row.get("id")
    return Model(model_id, model_id) if isinstance(model_id, str) else None


def _anthropic(row: dict[str, Any]) -> Model | None:
    model_id, shown = row.get("id"), row.get("display_name")
    return Model(model_id, shown if isinstance(shown, str) else model_id) if isinstance(model_id, str) else None


def _google(row: dict[str, Any]) -> Model | None:
    name, shown, methods = row.get("name"), row.get("displayName"), row.get("supportedGenerationMethods")
    if not isinstance(name, str) or (isinstance(methods, list) and "generateContent" not in methods):
        return None
    model_id = name.removeprefix("models/")
    return Model(model_id, shown if isinstance(shown, str) else model_id)


_READERS: Final[Mapping[ModelList, Callable[[dict[str, Any]], Model | None]]] = {
    "openai": _openai,
    "anthropic": _anthropic,
    "google": _google,
}
