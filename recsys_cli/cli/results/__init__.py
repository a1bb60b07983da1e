"""What each stage made: as a plain result that --json prints, and drawn for people. One file per stage."""

from __future__ import annotations

from recsys_cli.cli.results import apply, download, etl, evaluate, plan, profile, train

__all__ = ["apply", "download", "etl", "evaluate", "plan", "profile", "train"]
