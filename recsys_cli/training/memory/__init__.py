"""Memory estimate of a training run before its start."""
