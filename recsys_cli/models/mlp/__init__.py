"""The `mlp` model: the MLP of the Merlin notebook."""
