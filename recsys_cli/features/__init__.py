"""Feature engineering as pure, engine-neutral descriptions: ops, plans, splits and schemas."""
