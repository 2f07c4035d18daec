"""The only HTTP client that leaves the cluster.

Everything that fetches a URL named by a user or a model goes through `client`: names are resolved here, addresses that
are not public are refused, the connection goes to the very address that was checked, and every redirect is a new
request that is checked again.
"""

from libs.egress.addresses import AddressKind, classify
from libs.egress.client import client, read_body
from libs.egress.policy import BodyTooLarge, EgressPolicy, EgressRefused, Timeouts
from libs.egress.transport import GuardedTransport

__all__ = [
    "AddressKind",
    "BodyTooLarge",
    "EgressPolicy",
    "EgressRefused",
    "GuardedTransport",
    "Timeouts",
    "classify",
    "client",
    "read_body",
]
