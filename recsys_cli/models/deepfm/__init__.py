"""The `deepfm` model: a factorization machine and an MLP with shared embeddings."""
