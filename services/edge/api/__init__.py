"""HTTP routes, the WebSocket, and one handler an action."""
