"""The memory service: private files and tool documents of agents."""
