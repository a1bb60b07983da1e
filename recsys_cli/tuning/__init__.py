"""Hyperparameter search: studies, trials and the report of a study."""

from __future__ import annotations
