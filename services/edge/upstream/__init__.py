"""What the edge talks to: the services over gRPC, Valkey."""

from services.edge.upstream.peers import Peers
from services.edge.upstream.valkey import Valkey

__all__ = ["Peers", "Valkey"]
