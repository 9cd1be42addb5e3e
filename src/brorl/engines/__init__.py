"""Rollout engines: what draws the groups."""
