"""The page of a study: one HTML file that needs no network."""

from __future__ import annotations

from recsys_cli.tuning.report.page import show

__all__ = ["show"]
