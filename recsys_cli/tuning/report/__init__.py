"""The report of a study."""

from recsys_cli.tuning.report.page import show

__all__ = ["show"]
