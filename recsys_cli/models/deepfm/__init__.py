"""A factorization machine and an MLP with shared embeddings."""
