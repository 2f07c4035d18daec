"""Every cell of the table, sent to a running system."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from seed.secrets.v1 import admin_pb2, admin_pb2_grpc

from libs.client import ApiError, Client
from libs.protocol import ACTIONS
from libs.rpc import Peer, TokenSigner
from libs.stack import Stack
from tests.authorization.requests import REQUESTS, Asked
from tests.authorization.scenes import Holdings, Place, Revoke, Scene, holdings, place, scene
from tests.authorization.table import OK, RULES, Answer, Rule, Who, Whose, expected
from tests.support.kit import World

ENVIRONMENT = {
    "SEED_AGENTS_SESSION_TITLE_GENERATION": "false",
    "SEED_AGENTS_RATE_LIMITS": "false",
    "SEED_AGENTS_SUBSCRIPTION_AUTH": "true",
    # Nothing listens there: a code that is handed in is exchanged in vain.
    "SEED_AGENTS_OAUTH_TOKEN_URL": "http://127.0.0.1:9/token",
}
NOT_YET = "This server does not serve {} yet"

Cell = tuple[str, Who, Whose]


@dataclass
class Matrix:
    """What came back, and what the account of whom nobody knows had before and after."""

    answers: Mapping[Cell, Answer]
    served: frozenset[str]
    before: object
    after: object


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Matrix]:
    """All answers, asked for once."""
    with _hypermedia() as url:
        env = {**ENVIRONMENT, "SEED_AGENTS_HM_SERVER_URL": url}
        with Stack(tmp_path_factory.mktemp("matrix") / "data", env=env) as stack:
            yield asyncio.run(_ask_everything(stack))


class _TakesBlobs(BaseHTTPRequestHandler):
    """A Hypermedia server that takes whatever is published."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        body = b'{"json": {"cids": []}, "meta": {}}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def _hypermedia() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _TakesBlobs) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


async def _ask_everything(stack: Stack) -> Matrix:
    secrets = Peer("secrets", stack.addresses["secrets"], TokenSigner("ops", stack.internal_key))
    admin = secrets.stub(admin_pb2_grpc.SecretsAdminServiceStub)

    async def revoke(account: str, signer: str) -> None:
        request = admin_pb2.RevokeAuthorizationRequest(account=account, signer=signer)
        await secrets.call(admin.RevokeAuthorization, request)

    try:
        async with World(stack.urls) as world:
            served = await _served(world.client())
            other = await world.owner()
            foreign = await place(other, other.agent)
            others = await holdings(other.client, other.provider.url)
            before = await _belongings(other.client, foreign)
            answers: dict[Cell, Answer] = {}
            tasks = [_ask_as(who, world, revoke, served, foreign, others, answers) for who in Who]
            await asyncio.gather(*tasks)
            return Matrix(answers, served, before, await _belongings(other.client, foreign))
    finally:
        await secrets.close()


async def _ask_as(
    who: Who,
    world: World,
    revoke: Revoke,
    served: frozenset[str],
    foreign: Place,
    others: Holdings,
    answers: dict[Cell, Answer],
) -> None:
    seen = await scene(who, world, revoke)
    for rule in RULES:
        for whose in rule.whose if rule.action in served else ():
            fields = await REQUESTS[rule.name](Asked(seen, rule, whose, foreign, others))
            answers[rule.name, who, whose] = await _answer(seen, rule, fields)


async def _answer(seen: Scene, rule: Rule, fields: dict[str, object]) -> Answer:
    client = seen.client
    if rule.action == "RegisterSigner" and client.account != client.signer.key.id:
        client = seen.world.client(key=client.signer)
    try:
        if rule.action == "Subscribe" and rule.variant != "over HTTP":
            async with client.subscribe(str(fields["key"])) as events:
                await anext(events)
        else:
            await client.send({"_": rule.action, **fields})
    except ApiError as e:
        return Answer(e.status, e.message)
    return OK


async def _served(client: Client) -> frozenset[str]:
    """Actions that the server has an answer for. Those that change something refuse what is sent here."""
    found = {"Subscribe"}
    for name in ACTIONS:
        try:
            await client.send({"_": name, "label": ""})
        except ApiError as e:
            if e.message == NOT_YET.format(name):
                continue
        found.add(name)
    return frozenset(found)


async def _belongings(client: Client, at: Place) -> object:
    actions = [
        {"_": "GetAgent", "agentId": at.agent},
        {"_": "GetSession", "sessionId": at.session},
        {"_": "ListAgentCollaborators", "agentId": at.agent},
        {"_": "ListRuns", "sessionId": at.session},
        {"_": "ListAgentMemory", "agentId": at.agent},
        {"_": "ListAgents"},
        {"_": "ListModelProviders"},
        {"_": "ListSigningIdentities"},
    ]
    # The prompt tells the time.
    return [{**await client.send(action), "systemPromptMarkdown": ""} for action in actions]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_everybody_gets_the_answer_of_the_table(rule: Rule, matrix: Matrix) -> None:
    if rule.action not in matrix.served:
        pytest.skip("not served")
    got = {(str(who), str(whose)): str(matrix.answers[rule.name, who, whose]) for who in Who for whose in rule.whose}
    wanted = {(str(who), str(whose)): str(expected(rule, who, whose)) for who in Who for whose in rule.whose}
    wrong = {cell: f"{got[cell]}, not {wanted[cell]}" for cell in wanted if got[cell] != wanted[cell]}
    assert not wrong


def test_every_action_that_is_served_is_in_the_table(matrix: Matrix) -> None:
    assert matrix.served <= {rule.action for rule in RULES}
    assert set(REQUESTS) == {rule.name for rule in RULES}


def test_what_was_refused_changed_nothing_of_others(matrix: Matrix) -> None:
    assert matrix.before == matrix.after
