"""Cross layers and an MLP."""
