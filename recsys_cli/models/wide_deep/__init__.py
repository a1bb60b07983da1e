"""The `wide-deep` model: a linear model plus an MLP."""
