"""A Hydra launcher that trains the jobs of a multirun as stacks, and the sweeper that goes with it."""
