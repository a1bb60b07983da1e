"""The `lightgbm` model: gradient-boosted trees on features, and on what other rows tell of a row's user and item."""
