"""The rules of sessions: plain Python without I/O."""
