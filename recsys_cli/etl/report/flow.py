"""How many rows go into each op and come out of it, over all sources of a split that is given as files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from recsys_cli.etl.filters import RowCount
from recsys_cli.etl.report.facts import OpRows, SplitFacts
from recsys_cli.features.fitted_plan import FittedPlan

Chosen = Mapping[str, Sequence[RowCount]]
"""What ops did to the rows before the split, by source: "all", or the splits that are given."""


def flow(fitted: FittedPlan, chosen: Chosen, splits: Mapping[str, SplitFacts]) -> tuple[OpRows, ...]:
    """Say for each op of a plan how many rows go in and come out: all but those that choose or draw keep every row.

    Args:
        fitted: The fitted plan.
        chosen: What ops did before the split.
        splits: What came out in the end.
    """
    made = {name: split.rows - split.drawn for name, split in splits.items()}
    rows = {source: _first(source, counts, made) for source, counts in chosen.items()} or made
    found = []
    for index, op in enumerate(fitted.plan.ops):
        before = sum(rows.values())
        rows = rows | {
            source: count.rows_out for source, counts in chosen.items() for count in counts if count.index == index
        }
        if op == fitted.program.draw:
            rows = {name: split.rows for name, split in splits.items()}
        found.append(OpRows(op=op.title, columns=op.reads, rows_in=before, rows_out=sum(rows.values())))
    return tuple(found)


def _first(source: str, counts: Sequence[RowCount], made: Mapping[str, int]) -> int:
    """Return how many rows a source had; without an op that counted them, all are in the split of its name."""
    return counts[0].rows_in if counts else made.get(source, sum(made.values()))
