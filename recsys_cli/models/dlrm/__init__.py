"""The `dlrm` model: dot products of all pairs of embeddings, then an MLP."""
