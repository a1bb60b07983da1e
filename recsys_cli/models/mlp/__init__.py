"""The network of the Merlin notebook."""
