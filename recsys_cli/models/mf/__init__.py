"""Matrix factorisation that learns to rank."""
