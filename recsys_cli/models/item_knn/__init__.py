"""The `item-knn` model: item-based nearest neighbors by common users."""
