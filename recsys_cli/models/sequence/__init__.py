"""Shared parts of sequence models: base class, histories and windows, sampled softmax, Transformer."""
