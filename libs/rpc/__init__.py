"""Internal gRPC: one server factory, one way to call, one table of errors.

A servicer is a plain class whose methods are `async def Method(self, request, caller) -> response`. The factory wraps
each of them with authentication, error mapping, metrics and tracing; a caller uses `Peer.call`.
"""

from libs.rpc.client import Peer
from libs.rpc.errors import from_rpc_error
from libs.rpc.server import RpcServer
from libs.rpc.tokens import ANYBODY, Caller, TokenSigner, TokenVerifier

__all__ = ["ANYBODY", "Caller", "Peer", "RpcServer", "TokenSigner", "TokenVerifier", "from_rpc_error"]
