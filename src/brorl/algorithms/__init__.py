"""Advantages, losses, selection, shaping and schedules: plain functions in literal dictionaries."""
