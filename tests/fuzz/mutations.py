"""An endless, seeded stream of envelopes: good ones, and what becomes of them."""

from __future__ import annotations

import copy
import itertools
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from libs.protocol import ACTIONS, to_wire
from libs.wire import EncodeError, Key, Link, cid_bytes, decode, encode, sign_map
from tests.fuzz import forms
from tests.protocol.samples import samples

LINK = Link(cid_bytes(0x71, b"x"))
ORDER = 2**252 + 27742317777372353535851937790883648493
"""Of the group of Ed25519: a signature's second half, with this added, is another one that means the same."""


def nested(levels: int, leaf: Any = None) -> Any:
    """Lists in lists."""
    for _ in range(levels):
        leaf = [leaf]
    return leaf


def _nested_maps(levels: int) -> Any:
    leaf: Any = {}
    for _ in range(levels):
        leaf = {"a": leaf}
    return leaf


WRONG: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    2**31,
    2**53 - 1,
    2**53,
    2**63,
    2**64 - 1,
    -(2**63),
    -(2**64),
    0.5,
    -0.5,
    1e308,
    5e-324,
    "",
    " ",
    "x",
    "\0",
    "a\0b",
    "\u202e\ufeff",
    "𝕏" * 64,
    "é" * 300,
    "x" * 257,
    "x" * 70_000,
    "../" * 200,
    "%s%n{0}",
    "'; drop table agents; --",
    b"",
    b"x",
    bytes(34),
    b"\xed\x01" + bytes(32),
    bytes(70_000),
    [],
    [None],
    ["x"] * 200,
    [[]],
    {},
    {"": None},
    {"_": "x"},
    {"__proto__": {}},
    {"x": {"y": [1, 2.5, b"z"]}},
    {str(n): n for n in range(100)},
    LINK,
    [LINK],
    nested(100),
    nested(240),
    _nested_maps(200),
)
"""What a field may hold instead of what belongs there."""


@dataclass(frozen=True, slots=True)
class Input:
    """Bytes to send. `kind` says how they were made, `signed` is the action in them when they are signed properly."""

    kind: str
    body: bytes
    signed: Mapping[str, Any] | None = None

    @property
    def action(self) -> str:
        """What is asked for; empty when it is not signed properly."""
        return self.signed["_"] if self.signed else ""


class Seeds:
    """Good actions, as maps without `ts`: every action of the protocol, with ids that exist where `known` has them.

    What deletes names nothing that exists, so that the others still find what they name.
    """

    def __init__(self, known: Mapping[str, Any]) -> None:
        self.actions: list[dict[str, Any]] = []
        for name, kind in ACTIONS.items():
            ids = {} if name.startswith("Delete") else known
            for sample in samples(kind):
                action = to_wire(sample)
                action.pop("ts", None)
                self.actions.append({key: ids.get(key, value) for key, value in action.items()})

    def fields(self) -> list[tuple[dict[str, Any], tuple[Any, ...]]]:
        """Every field of every action, also those inside: the action and the way to it."""
        found: dict[tuple[str, tuple[Any, ...]], dict[str, Any]] = {}
        for action in self.actions:
            for way in _ways(action):
                if way != ("_",):
                    found.setdefault((action["_"], way), action)
        return [(action, way) for (_, way), action in found.items()]


class Mutator:
    """Makes inputs signed by `key` for itself. Equal seeds give equal inputs, but for the clock in them."""

    def __init__(self, key: Key, seeds: Seeds, seed: int) -> None:
        self._key, self._seeds, self._dice = key, seeds, random.Random(seed)
        self._last = 0
        self._good: list[bytes] = []
        self._fields = seeds.fields()
        self._kinds: tuple[tuple[int, Callable[[], Input]], ...] = (
            (40, self.good),
            (500, self.bytes_changed),
            (100, self.written_otherwise),
            (140, self.parts_changed),
            (120, self.signed_oddly),
            (50, self.signature_changed),
            (30, self.noise),
            (2, self.too_much),
        )

    def stream(self) -> Iterator[Input]:
        """Inputs without end."""
        weights = [weight for weight, _ in self._kinds]
        makers = [make for _, make in self._kinds]
        while True:
            yield self._dice.choices(makers, weights)[0]()

    def wrong_types(self, part: int = 0, parts: int = 1) -> Iterator[Input]:
        """Everything wrong in every field of every action, in random order, properly signed; or a part of it.

        The parts of mutators with different seeds make up the whole.
        """
        cells = list(itertools.product(range(len(self._fields)), range(len(WRONG))))
        random.Random(parts).shuffle(cells)
        for field, value in cells[part::parts]:
            action, way = self._fields[field]
            yield self._signed("wrong type", _put(action, way, WRONG[value]))

    def sign(self, action: Mapping[str, Any]) -> bytes:
        """A good envelope, fresh."""
        return sign_map(self._key, self._unsigned(action))

    def good(self) -> Input:
        """A good envelope of any action."""
        return self._signed("good", self._dice.choice(self._seeds.actions))

    def bytes_changed(self) -> Input:
        """A good envelope with some bytes flipped, put in, taken out or moved."""
        body = bytearray(self._recent())
        for _ in range(self._dice.choice((1, 1, 1, 2, 4, 8))):
            self._change(body)
        return Input("bytes", bytes(body))

    def written_otherwise(self) -> Input:
        """The same envelope in another encoding, some of which count as the same."""
        value = decode(self._recent())
        return Input("form", forms.write(value, self._dice, self._dice.choice((0.02, 0.1, 0.5))))

    def parts_changed(self) -> Input:
        """An envelope some of whose values were exchanged after it was signed."""
        value = decode(self._recent())
        for _ in range(self._dice.choice((1, 1, 2))):
            value = self._exchanged(value)
        return Input("parts", self._encoded(value))

    def signed_oddly(self) -> Input:
        """An action some of whose values were exchanged before it was signed."""
        action = self._dice.choice(self._seeds.actions)
        changed = self._exchanged(action)
        if not isinstance(changed, dict):
            return self.good()
        if action["_"].startswith("Delete") or changed.get("_") != action["_"]:
            return self._signed("signed", action)
        return self._signed("signed", changed)

    def signature_changed(self) -> Input:
        """A signature that is nearly right: of another key, malleable, of small order, or for another account."""
        value = decode(self._recent())
        sig: bytes = value["sig"]
        other = Key(self._dice.randbytes(32))
        match self._dice.randrange(6):
            case 0:
                value["sig"] = sig[:32] + (int.from_bytes(sig[32:], "little") + ORDER).to_bytes(33, "little")[:32]
            case 1:
                value["sig"] = bytes(64)
            case 2:
                value["signer"], value["sig"] = b"\xed\x01" + bytes(32), b"\x01" + bytes(63)
            case 3:
                value["account"] = other.principal
            case 4:
                value["signer"] = value["account"] = other.principal
            case _:
                value["sig"] = other.sign(encode({**value, "sig": bytes(64)}))
        return Input("signature", encode(value))

    def too_much(self) -> Input:
        """Lengths that lie, depths, and bodies of up to a megabyte."""
        dice = self._dice
        match dice.randrange(7):
            case 0:
                return Input("much", bytes((dice.choice((0x5B, 0x7B, 0x9B, 0xBB)),)) + dice.randbytes(8) + b"x" * 50)
            case 1:
                return Input("much", b"\x81" * dice.choice((300, 10_000, 200_000)) + b"\xf6")
            case 2:
                return Input("much", b"\xa1\x61a" * dice.choice((300, 50_000)) + b"\xf6")
            case 3:
                return Input("much", b"\x9a\x00\x04\x00\x00" + b"\xf6" * (1 << 18))
            case 4:
                return self._signed("much", {"_": "SetSecret", "name": "n", "value": bytes(dice.randrange(1 << 20))})
            case 5:
                items = [dice.choice((1, "x", None))] * dice.randrange(100_000)
                return self._signed("much", {"_": "CreateAgent", "definition": items})
            case _:
                return self._signed("much", {"_": "Q" * dice.randrange(1 << 18)})

    def noise(self) -> Input:
        """No CBOR in particular."""
        return Input("noise", self._dice.randbytes(self._dice.choice((0, 1, 2, 9, 60, 300))))

    def _unsigned(self, action: Mapping[str, Any]) -> dict[str, Any]:
        self._last = max(time.time_ns() // 1_000_000, self._last + 1)
        stamped = {"ts": self._last, **action}
        principal = self._key.principal
        return {"type": "AgentsAction", "signer": principal, "account": principal, "protocol": 3, "action": stamped}

    def _signed(self, kind: str, action: Mapping[str, Any]) -> Input:
        try:
            body = self.sign(action)
        except EncodeError:
            return self.good()
        if len(body) < 4096:
            self._good = [*self._good[-31:], body]
        return Input(kind, body, action)

    def _recent(self) -> bytes:
        return self._dice.choice(self._good) if self._good else self.good().body

    def _encoded(self, value: Any) -> bytes:
        try:
            return encode(value)
        except EncodeError:
            return forms.write(value, self._dice, 0.0)

    def _exchanged(self, value: Any) -> Any:
        ways = list(_ways(value))
        way = self._dice.choice(ways)
        match self._dice.randrange(5):
            case 0:
                return _take(value, way)
            case 1:
                return _put(value, (*way[:-1], self._dice.choice(("x", "", "protocol", "__proto__"))), self._wrong())
            case 2:
                return _put(value, way, _get(value, self._dice.choice(ways)))
            case _:
                return _put(value, way, self._wrong())

    def _wrong(self) -> Any:
        return self._dice.choice(WRONG)

    def _change(self, body: bytearray) -> None:
        dice = self._dice
        at = dice.randrange(len(body) + 1)
        match dice.randrange(7):
            case 0 | 1 if at < len(body):
                body[at] ^= 1 << dice.randrange(8)
            case 2 if at < len(body):
                body[at] = dice.choice((0, 0x5F, 0x7F, 0x9F, 0xBF, 0xD8, 0xF7, 0xFB, 0xFF))
            case 3:
                body[at:at] = dice.randbytes(dice.choice((1, 1, 2, 8)))
            case 4:
                del body[at : at + dice.choice((1, 1, 2, 16))]
            case 5:
                body[at:at] = body[dice.randrange(len(body) + 1) :][: dice.randrange(40)]
            case _:
                del body[at:]


def _ways(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    entries: Sequence[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        entries = list(value.items())
    elif isinstance(value, list):
        entries = list(enumerate(value))[:3]
    for key, inner in entries:
        yield (*at, key)
        if len(at) < 6:
            yield from _ways(inner, (*at, key))


def _get(value: Any, way: tuple[Any, ...]) -> Any:
    for key in way:
        value = value[key]
    return value


def _put(value: Any, way: tuple[Any, ...], new: Any) -> Any:
    changed = copy.deepcopy(value)
    holder = _get(changed, way[:-1])
    if isinstance(holder, list) and not isinstance(way[-1], int):
        holder.append(copy.deepcopy(new))
    else:
        holder[way[-1]] = copy.deepcopy(new)
    return changed


def _take(value: Any, way: tuple[Any, ...]) -> Any:
    changed = copy.deepcopy(value)
    del _get(changed, way[:-1])[way[-1]]
    return changed
