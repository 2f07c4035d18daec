"""Why a queued run waits."""

from __future__ import annotations

from dataclasses import dataclass

HOUR_MS = 3_600_000

NO_WORKER = "no-worker"
BACKOFF = "backoff"
SESSION_BUSY = "session-busy"
HOURLY_LIMIT = "hourly-limit"
BACKGROUND_LIMIT = "background-limit"
ACCOUNT_LIMIT = "account-limit"
QUEUED = "queued"


@dataclass(frozen=True, slots=True)
class Limits:
    """Most runs of one account: executed at once, of those in the background, and begun within an hour (0: any)."""

    running: int = 64
    background: int = 16
    hourly: int = 0


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known about a queued run and its surroundings. Times are Unix milliseconds.

    `ahead` is the run that its session executes or has queued before it, `live` and `live_background` are those of its
    account, `hourly_until` tells when the account may begin another (0: now), `workers` those that claim.
    """

    background: bool
    begun: bool
    not_before: int
    ahead: str
    live: int
    live_background: int
    hourly_until: int
    workers: int


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a run waits: a name, until when if that is known (Unix ms, else 0), and the run it waits for, if any."""

    name: str
    until: int = 0
    behind: str = ""


def why(facts: Facts, limits: Limits, now: int) -> Reason:
    """The first thing that has to change before the run is executed; QUEUED when only others go before it."""
    if not facts.workers:
        return Reason(NO_WORKER)
    if facts.not_before > now:
        return Reason(BACKOFF, until=facts.not_before)
    if facts.ahead:
        return Reason(SESSION_BUSY, behind=facts.ahead)
    if facts.hourly_until and not facts.begun:
        return Reason(HOURLY_LIMIT, until=facts.hourly_until)
    if facts.background and facts.live_background >= limits.background:
        return Reason(BACKGROUND_LIMIT)
    if facts.live >= limits.running:
        return Reason(ACCOUNT_LIMIT)
    return Reason(QUEUED)
