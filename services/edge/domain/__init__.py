"""The rules of the edge: replays, turns that are waited for, what a socket is sent and in which order.

No I/O of its own.
"""
