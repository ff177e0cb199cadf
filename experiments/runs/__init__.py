"""Train configurations and write their records: stacks of runs, phases, and sharing among processes."""
