"""Rows of runs: the table is the queue."""
