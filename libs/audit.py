"""Who did what to the things an account trusts us with: the words of the audit. Its rows are `libs.store.audit`'s."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts: the acting `account`, the key that signed (`signer`), and the service `via` which the call came.

    Account and signer are empty when nobody's request is behind it (an operator's command, a service by itself).
    """

    account: str
    signer: str
    via: str


@dataclass(frozen=True, slots=True)
class Entry:
    """Something that was done: `action` to `subject` (a name or id) of `account`, at `at` (Unix milliseconds), by `by`.

    `detail` says more, for instance a role. Nothing in it is a value of a secret.
    """

    id: int
    at: int
    account: str
    by: Actor
    action: str
    subject: str
    detail: str
