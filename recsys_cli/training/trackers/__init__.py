"""Experiment trackers: they receive the lines of metrics.jsonl, and their failures never stop the training."""

from recsys_cli.training.trackers.tracker import Series, Tracker, flat
from recsys_cli.training.trackers.trackers import Trackers, find

__all__ = ["Series", "Tracker", "Trackers", "find", "flat"]
