"""The Polars engine: one fit/apply pair per op, on all cores."""
