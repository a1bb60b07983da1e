"""The `popularity` model: item popularity, overall or among users with the same favorites."""
