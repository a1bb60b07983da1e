"""Shared parts of sequence models."""
