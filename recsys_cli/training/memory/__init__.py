"""Memory estimate of a training run, before it starts."""
