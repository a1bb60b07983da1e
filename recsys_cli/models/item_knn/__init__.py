"""Item-based nearest neighbors by common users."""
