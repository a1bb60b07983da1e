"""The training loop, which yields events; optimizers and checkpoints."""
