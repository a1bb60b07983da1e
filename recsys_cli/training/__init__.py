"""Training: loop, optimizers, checkpoints, several processes."""
