"""The `popularity` model: the same ranking for everybody."""
