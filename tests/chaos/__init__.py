"""Real processes under load while parts of the system are killed, and what must hold of the history afterwards."""
