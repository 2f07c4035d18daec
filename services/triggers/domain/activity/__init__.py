"""The rules of the activity feed. Everything here is pure and total."""
