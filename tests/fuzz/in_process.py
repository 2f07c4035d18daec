"""The edge's verification, called directly, against the oracle."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from libs.wire import EnvelopeError, verify_envelope
from tests.fuzz.mutations import Input
from tests.fuzz.oracle import accepts, within_limits

SKEW_MS = 300_000
SLOW_S = 0.1
PLAIN_BYTES = 64 * 1024
"""Of what is refused, the oracle reads only this much: it is slow."""


@dataclass
class Findings:
    """What happened, by kind of input; `faults` are what must not have."""

    seen: Counter[tuple[str, str]] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def fault(self, what: str, given: Input) -> None:
        """Note a fault with all that is needed to see it again."""
        self.faults.append(f"{what}: {given.kind} {given.action} {len(given.body)} bytes {given.body[:600].hex()}")


def verify_all(inputs: Iterable[Input]) -> Findings:
    """Verify all of them. Slow is what takes a tenth of a second of this thread's own time: others do not count."""
    found = Findings()
    for given in inputs:
        now_ms = time.time() * 1000
        outcome = "accepted"
        started = time.thread_time()
        try:
            verify_envelope(given.body, now_ms=now_ms, skew_ms=SKEW_MS)
        except EnvelopeError as e:
            outcome = str(e.status)
        except Exception as e:  # noqa: BLE001 - whatever it is, the edge would answer 500
            found.fault(f"raises {type(e).__name__}", given)
            continue
        if time.thread_time() - started > SLOW_S:
            found.fault("slow", given)
        found.seen[given.kind, outcome] += 1
        accepted = outcome == "accepted"
        if not accepted and len(given.body) > PLAIN_BYTES:
            continue
        allowed = accepts(given.body, now_ms, SKEW_MS)
        if accepted and not allowed:
            found.fault("accepted, and the oracle refuses", given)
        if allowed and not accepted and within_limits(given.body):
            found.fault("refused, and the oracle accepts", given)
    return found
