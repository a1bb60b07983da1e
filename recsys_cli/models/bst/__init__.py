"""A transformer over the history and the item."""
