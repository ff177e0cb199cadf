"""Studies of many runs: frozen plans, workers on this machine, array jobs of Slurm."""
