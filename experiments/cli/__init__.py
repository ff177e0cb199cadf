"""The command line: rewrite the arguments, check all jobs, then let Hydra start them. Imports no torch."""
