"""Options of the models by family, without torch."""
