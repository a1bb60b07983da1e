"""What to compute: pure descriptions, no engine."""
