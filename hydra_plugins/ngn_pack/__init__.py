"""A Hydra launcher that trains the jobs of a multirun as stacks, and its sweeper."""
