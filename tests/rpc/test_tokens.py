"""Internal tokens: who may call whom, until when."""

from __future__ import annotations

import base64
import json
from typing import Any

import jwt
import pytest

from libs.errors import Unauthenticated
from libs.rpc import Caller, TokenSigner, TokenVerifier
from libs.rpc.tokens import TOKEN_SECONDS

KEY, OTHER = "k" * 32, "o" * 32


class Clock:
    """A time that a test moves."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def test_a_token_names_service_account_and_signer() -> None:
    clock = Clock()
    token = TokenSigner("edge", KEY, clock).token("runs", "acc", "sig")
    assert TokenVerifier("runs", KEY, clock).verify(token) == Caller("edge", "acc", "sig")


def test_a_token_is_for_one_service_and_one_key() -> None:
    clock = Clock()
    token = TokenSigner("edge", KEY, clock).token("runs")
    for verifier in (TokenVerifier("sessions", KEY, clock), TokenVerifier("runs", OTHER, clock)):
        with pytest.raises(Unauthenticated, match="not valid"):
            verifier.verify(token)


def test_a_token_ends_also_where_it_is_cached() -> None:
    clock = Clock()
    token = TokenSigner("edge", KEY, clock).token("runs")
    used, unused = TokenVerifier("runs", KEY, clock), TokenVerifier("runs", KEY, clock)
    assert used.verify(token) == used.verify(token)
    clock.now += TOKEN_SECONDS
    for verifier in (used, unused):
        with pytest.raises(Unauthenticated, match="expired"):
            verifier.verify(token)


def test_the_signer_reuses_a_token_only_while_half_of_its_life_is_left() -> None:
    clock = Clock()
    signer, verifier = TokenSigner("edge", KEY, clock), TokenVerifier("runs", KEY, clock)
    first = signer.token("runs", "a")
    clock.now += TOKEN_SECONDS / 2 - 1
    assert signer.token("runs", "a") == first
    assert signer.token("runs", "b") != first
    clock.now += 2
    second = signer.token("runs", "a")
    assert second != first
    clock.now += TOKEN_SECONDS / 2 + 10
    assert verifier.verify(second).account == "a"


def _none(token: str) -> str:
    head = base64.urlsafe_b64encode(json.dumps({"alg": "none", "typ": "JWT"}).encode()).rstrip(b"=").decode()
    return f"{head}.{token.split('.')[1]}."


def _changed(token: str) -> str:
    head, body, signature = token.split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    claims["acc"] = "somebody else"
    return f"{head}.{base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b'=').decode()}.{signature}"


@pytest.mark.parametrize(
    "forge", [_none, _changed, lambda t: "", lambda t: t[:-2], lambda t: "a.b.c", lambda t: t + "x"]
)
def test_forged_tokens_are_refused(forge: Any) -> None:
    clock = Clock()
    token = TokenSigner("edge", KEY, clock).token("runs", "acc")
    with pytest.raises(Unauthenticated, match="not valid"):
        TokenVerifier("runs", KEY, clock).verify(forge(token))


@pytest.mark.parametrize("missing", ["exp", "aud", "iss"])
def test_a_token_without_a_claim_is_refused(missing: str) -> None:
    claims = {"iss": "edge", "aud": "runs", "exp": 2_000_000}
    del claims[missing]
    with pytest.raises(Unauthenticated, match="not valid"):
        TokenVerifier("runs", KEY, Clock()).verify(jwt.encode(claims, KEY, algorithm="HS256"))


def test_caches_stay_small() -> None:
    clock = Clock()
    signer, verifier = TokenSigner("edge", KEY, clock), TokenVerifier("runs", KEY, clock)
    for number in range(8192 + 50):
        verifier.verify(signer.token("runs", str(number)))
    assert len(signer._cache) == len(verifier._cache) == 8192
