"""From configurations to records: stacks of runs, their phases, and how several processes share them."""
