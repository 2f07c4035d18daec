"""gRPC servicers of sessions: decode, authorize, call, encode."""
