"""The `logistic` model: logistic regression."""
