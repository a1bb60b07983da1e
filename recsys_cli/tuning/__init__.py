"""Studies: which values were tried and how good they were, which to try next, and the page that shows it."""

from __future__ import annotations
