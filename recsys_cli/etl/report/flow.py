"""The numbers of rows before and after each op, summed over the sources of a files split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from recsys_cli.etl.filters import RowCount
from recsys_cli.etl.report.facts import OpRows, SplitFacts
from recsys_cli.ops.fitted_plan import FittedPlan

RowCounts = Mapping[str, Sequence[RowCount]]
"""Row counts of the filters before the split, by source: "all", or the splits of a files split."""


def flow(fitted: FittedPlan, chosen: RowCounts, splits: Mapping[str, SplitFacts]) -> tuple[OpRows, ...]:
    """Return the numbers of rows before and after each op: only filters and negative sampling change them."""
    interactions = {name: split.rows - split.drawn for name, split in splits.items()}
    rows = {source: _first(source, counts, interactions) for source, counts in chosen.items()} or interactions
    ops = []
    for index, op in enumerate(fitted.plan.ops):
        before = sum(rows.values())
        rows = rows | {
            source: count.rows_out for source, counts in chosen.items() for count in counts if count.index == index
        }
        if op == fitted.program.draw:
            rows = {name: split.rows for name, split in splits.items()}
        ops.append(OpRows(op=op.title, columns=op.reads, rows_in=before, rows_out=sum(rows.values())))
    return tuple(ops)


def _first(source: str, counts: Sequence[RowCount], interactions: Mapping[str, int]) -> int:
    """Return the raw rows of a source; without filters, the rows of its split."""
    return counts[0].rows_in if counts else interactions.get(source, sum(interactions.values()))
