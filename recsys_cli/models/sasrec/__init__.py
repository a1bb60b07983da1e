"""The `sasrec` model: next-item prediction with causal self-attention."""
