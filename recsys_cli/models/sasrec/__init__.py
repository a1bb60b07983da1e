"""Next-item prediction with causal self-attention."""
