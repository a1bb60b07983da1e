"""Fixtures of serving."""

from __future__ import annotations

from tests.served_runs import make_run, recommenders, served_workspace

__all__ = ["make_run", "recommenders", "served_workspace"]
