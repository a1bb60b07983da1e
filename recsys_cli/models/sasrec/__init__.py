"""The `sasrec` model: the next item by self-attention over those before it."""
