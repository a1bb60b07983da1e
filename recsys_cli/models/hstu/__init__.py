"""Next-item prediction with gated pointwise attention over items and times."""
