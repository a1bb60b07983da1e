"""Sparse item-to-item weights by elastic nets."""
