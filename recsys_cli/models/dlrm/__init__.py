"""The `dlrm` model: dot products of all pairs of embeddings, into a tower."""
