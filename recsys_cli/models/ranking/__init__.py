"""Shared parts of ranking models: columns, embeddings, linear terms, interactions, MLPs. No torch is imported here."""
