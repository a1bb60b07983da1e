"""The `neumf` model: neural matrix factorization."""
