"""The `fm` model: a factorization machine."""
