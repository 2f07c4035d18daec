"""The signed maps of the schema, as a client builds them. A server reads them through `libs.wire`."""

from typing import Literal

from msgspec import UNSET, UnsetType

from .actions import AgentAction
from .base import Wire


class SignedActionEnvelope(Wire, kw_only=True):
    """A request as it travels."""

    type: Literal["AgentsAction"] = "AgentsAction"
    signer: bytes
    sig: bytes
    account: bytes
    protocol: int | UnsetType = UNSET
    action: AgentAction


class CapabilityBlob(Wire, kw_only=True):
    """A delegation that RegisterSigner carries."""

    type: Literal["Capability"] = "Capability"
    signer: bytes
    """Principal of the delegating account."""
    sig: bytes
    ts: int | float
    delegate: bytes
    """Principal that may sign for it."""
    role: str
    path: str | UnsetType = UNSET
    label: str | UnsetType = UNSET
    audience: bytes | UnsetType = UNSET
