"""Where prompts come from: files, Reasoning Gym, and weighted mixtures of them."""
