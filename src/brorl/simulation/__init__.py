"""The paper's bandit simulation."""
