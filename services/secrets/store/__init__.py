"""The rows of secrets."""
