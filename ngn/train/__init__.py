"""Training: the trainer, its optimisers, batches, checkpoints."""
