"""Figures of rows that chose something: the best of several epochs or trials on some rows looks better there than it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

Selection = Literal["epoch", "trial"]
"""What was chosen by its figures on the reported rows: the epoch whose weights are kept, or the values that a study tried."""

MARK = "†"
"""Stands beside the name of a model whose figures are of such rows."""


def marked(name: str, selected: Sequence[Selection]) -> str:
    """Return a name with the mark where it needs one."""
    return f"{name} {MARK}" if selected else name


def note(selected: Sequence[Selection], split: str, *, has_test: bool) -> str:
    """Say what was chosen, and how to have figures of rows that chose nothing.

    Args:
        selected: At least one.
        split: The split that was measured.
        has_test: Whether the data has a test split.
    """
    what = " and the ".join(selected)
    instead = (
        "measure on test: recsys evaluate evaluate.split=test"
        if has_test
        else "for figures without that, give the data a test split: recsys run CONFIG split.test=0.1"
    )
    return f"{MARK} The rows of {split} chose the {what}, so the figures of the model are too good; {instead}."


def legend(by_model: Mapping[str, Sequence[Selection]], split: str) -> str | None:
    """Say it of several models in one sentence; None where no rows chose anything.

    Args:
        by_model: What was chosen, by the models' names.
        split: The split that was measured.
    """
    chosen = dict.fromkeys(what for selected in by_model.values() for what in selected)
    if not chosen:
        return None
    return f"{MARK} the rows of {split} chose its {' or '.join(chosen)}, so its figures are too good"
