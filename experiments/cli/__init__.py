"""The command line: what was typed is rewritten, checked whole, and only then given to Hydra. No torch is imported."""
