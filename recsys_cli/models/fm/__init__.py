"""A factorization machine."""
