"""The `two-stage` model: candidates of several generators, a ranker of candidates, and re-ranking of its list."""
