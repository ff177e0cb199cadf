"""Training: the trainer, its plan and batches."""
