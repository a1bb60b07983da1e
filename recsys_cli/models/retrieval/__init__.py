"""Shared parts of retrieval models: base class, item catalog, losses over sampled negatives. No torch is imported here."""
