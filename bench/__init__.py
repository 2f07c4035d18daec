"""Measurements of a whole stack against floors of the same machine in the same run. `make bench`; see README.md."""
