"""Training: the trainer, its optimisers, batches, checkpoints, and the compiled kernels."""
