"""Neural matrix factorization."""
