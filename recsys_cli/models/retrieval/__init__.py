"""Retrieval models: their base class, the item catalog, and losses of sampled negatives. No torch is imported here."""
