"""Sequence models: their base class, histories and windows, sampled softmax, and the Transformer."""
