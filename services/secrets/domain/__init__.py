"""The rules of secrets: plain Python, no I/O it was not handed."""
