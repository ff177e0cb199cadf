"""Training: the trainer, its optimisers, batches and checkpoints."""
