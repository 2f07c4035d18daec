"""Agents, their members, conversations and the turn ledger."""
