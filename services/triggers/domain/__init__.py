"""The rules: plain Python, no I/O it was not handed."""
