"""What sockets watch, kept live: subscriptions, the bus, loads from the owners, access."""
