"""Train studies of many runs: frozen plans, workers on this machine, and Slurm array jobs."""
