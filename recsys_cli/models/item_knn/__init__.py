"""The `item-knn` model: items that the same users have met are near."""
