"""Dot products of all pairs of embeddings, then an MLP."""
