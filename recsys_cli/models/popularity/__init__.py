"""Item popularity, overall or among users with the same favorites."""
