"""A comparison of recipes: arms from one checkpoint, several seeds, one budget, one report."""
