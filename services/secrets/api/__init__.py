"""gRPC servicers: decode, authorize, call the domain, encode."""
