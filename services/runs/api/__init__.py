"""gRPC servicers of runs: decode, authorize, call, encode."""
