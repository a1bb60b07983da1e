"""The `deepfm` model: a factorization machine and a tower that share their vectors."""
