"""The `popularity` model: the same ranking for everybody, or for everybody with the same favourites."""
