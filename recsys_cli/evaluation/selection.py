"""Selection bias: metrics on the rows that chose the best epoch, trial or model are optimistic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

Selection = Literal["epoch", "trial", "model"]
"""Choice made on the reported rows: the best epoch of a run, the best trial of a study, or the best candidate of `auto`."""

MARK = "†"
"""Mark behind the name of a model with optimistic metrics."""


def marked(name: str, selected: Sequence[Selection]) -> str:
    """Return a model's name, marked if its metrics are optimistic."""
    return f"{name} {MARK}" if selected else name


def note(selected: Sequence[Selection], split: str, *, has_test: bool) -> str:
    """Explain the selection bias and how to avoid it."""
    choices, verb = " and ".join(selected), "was" if len(selected) == 1 else "were"
    instead = (
        "measure on test: recsys evaluate evaluate.split=test"
        if has_test
        else "for unbiased metrics, add a test split: recsys run CONFIG split.test=0.1"
    )
    return f"{MARK} The best {choices} {verb} chosen on {split}, so the model's metrics are optimistic; {instead}."


def legend(by_model: Mapping[str, Sequence[Selection]], split: str) -> str | None:
    """Explain the mark for several models in one sentence; None if no model has it."""
    choices = dict.fromkeys(choice for selected in by_model.values() for choice in selected)
    if not choices:
        return None
    return f"{MARK} the best {' or '.join(choices)} was chosen on {split}, so its metrics are optimistic"
