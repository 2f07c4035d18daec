"""Rules of files and tool documents, without I/O of their own."""
