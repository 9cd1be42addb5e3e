"""The theory of broad exploration (BroRL, arXiv 2510.01180) as functions on arrays, and on real groups."""
