"""What is kept on disk: records, the provenance that they carry, leases on runs. Imports no torch."""
