"""The plan computed with Polars: one fit/apply pair per op, on all cores."""
