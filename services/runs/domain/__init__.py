"""Rules of runs and turns, without any I/O."""
