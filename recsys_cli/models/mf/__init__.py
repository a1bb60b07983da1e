"""The `mf` model: matrix factorization with a ranking loss."""
