"""One network for the user's features, one for the item's."""
