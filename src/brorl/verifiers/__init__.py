"""Graders: plain functions (prompt, response) -> Score, and the pool of processes that runs them."""
