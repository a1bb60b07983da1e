"""The report: one HTML file that needs no network, with everything that a reader of the figures asks for."""

from __future__ import annotations

from recsys_cli.evaluation.report.page import render

__all__ = ["render"]
