"""Feature engineering as engine-neutral descriptions: ops, plans, splits and schemas."""
