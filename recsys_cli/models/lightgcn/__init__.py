"""Vectors that are smoothed over the graph of who likes what."""
