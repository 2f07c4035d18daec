"""Rows of sessions: one module an area, every effect with its outbox rows in one transaction."""
