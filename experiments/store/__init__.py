"""Files on disk: records with their provenance, and leases on runs. Imports no torch."""
