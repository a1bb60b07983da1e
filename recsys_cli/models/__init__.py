"""Torch modules; they know Schema and Batch, and nothing else."""
