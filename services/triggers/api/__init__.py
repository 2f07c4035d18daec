"""gRPC: decode, authorize, call the domain, encode."""
