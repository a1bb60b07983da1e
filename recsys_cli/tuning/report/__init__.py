"""The report of a study: one self-contained HTML file."""

from __future__ import annotations

from recsys_cli.tuning.report.page import show

__all__ = ["show"]
