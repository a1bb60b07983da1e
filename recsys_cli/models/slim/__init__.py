"""The `slim` model: sparse item-to-item weights by elastic nets."""
