"""Results of the stages: plain values for --json, and their tables."""

from __future__ import annotations

from recsys_cli.cli.results import apply, download, etl, evaluate, plan, train

__all__ = ["apply", "download", "etl", "evaluate", "plan", "train"]
