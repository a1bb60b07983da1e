"""The report of a study."""

from __future__ import annotations

from recsys_cli.tuning.report.page import show

__all__ = ["show"]
