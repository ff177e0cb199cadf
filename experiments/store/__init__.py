"""What is kept on disk: records, the provenance that they carry, claims on runs. Imports no torch."""
