"""The `slim` model: each item told from few others by an elastic net."""
