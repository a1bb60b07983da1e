"""Matrix factorization with a ranking loss."""
