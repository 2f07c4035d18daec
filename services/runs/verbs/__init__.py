"""What `read`, `write` and `call` do, for the turns of a worker and for people (runtime.md, sections 5, 6 and 11).

`Verbs` is the one dispatcher. A form of addresses is a file here and a line in `server.py`.
"""
