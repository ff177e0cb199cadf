"""The configuration of a run: its typed schema, how it is composed, and which run it names. Imports no torch."""
