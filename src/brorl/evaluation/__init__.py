"""Held-out scores of a policy."""
