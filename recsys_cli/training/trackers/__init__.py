"""Other programs that draw what training measures: each is fed the lines of metrics.jsonl, and none can stop the training."""

from recsys_cli.training.trackers.tracker import Series, Tracker, flat
from recsys_cli.training.trackers.trackers import Trackers, find

__all__ = ["Series", "Tracker", "Trackers", "find", "flat"]
