"""The configuration of a run: its typed schema, its composition, and its run id. Imports no torch."""
