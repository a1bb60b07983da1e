"""The evaluation report: one self-contained HTML file."""

from __future__ import annotations

from recsys_cli.evaluation.report.page import render

__all__ = ["render"]
