"""gRPC servicers: decode, authorize, call the rules and the store, encode."""
