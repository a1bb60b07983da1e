"""The MLP of the Merlin notebook."""
