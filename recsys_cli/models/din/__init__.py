"""Target attention over the history."""
