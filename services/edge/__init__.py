"""The public edge: HTTP and WebSocket outside, gRPC and NATS inside. Stateless."""
