"""Hyperparameter search: studies, trials and the report of a study."""
