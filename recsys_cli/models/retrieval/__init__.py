"""Shared parts of retrieval models."""
