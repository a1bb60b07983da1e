"""Embeddings propagated over the graph of positive interactions."""
