"""Triggers: what wakes an agent, and the record of every time that it did."""
