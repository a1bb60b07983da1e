"""Options of the user history, without a torch import."""

from __future__ import annotations

from pydantic import Field

from recsys_cli.config.section import Section


class HistoryFeature(Section):
    """The user's latest items before the time of a row, with their categorical features."""

    max_seq_len: int = Field(50, ge=1, le=10_000)
    """Maximum number of items, the latest."""
    by_label: bool = True
    """Distinguish positive from other items. For a numeric label, positive is above its mean in train."""
    column: str | None = None
    """List column with the history of each row, oldest item first, in one vocabulary with the item column. None: the
    interactions before the row's timestamp."""
