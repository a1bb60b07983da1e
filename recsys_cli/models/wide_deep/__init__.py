"""A linear model plus an MLP."""
