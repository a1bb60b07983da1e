"""The `mlp` model: the network of the Merlin notebook."""
