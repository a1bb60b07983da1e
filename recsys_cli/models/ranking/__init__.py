"""Shared parts of ranking models."""
