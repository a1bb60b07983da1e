"""The `lightgbm` model: gradient-boosted trees on row features and out-of-fold collaborative features."""
