"""Says in sentences which differences count, and which are noise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from recsys_cli.evaluation.compare.comparison import Figure, Verdict

METHOD = (
    "Rows of one user are not independent, so users are the unit of chance. Intervals of rankings are from a paired bootstrap over "
    "users, p from Wilcoxon's signed-rank test; of AUC both are DeLong's with placements summed by user, of log loss and errors "
    "those of a paired t test of sums by user. p is corrected by Holm for all tests of the table. A difference counts where the "
    "corrected p is below 0.05 and the interval does not hold zero."
)


def verdicts(against: str, others: Sequence[str], figures: Sequence[Figure], *, users: int, rows: int) -> Iterator[str]:
    """Yield a sentence or two for each run that is compared.

    Args:
        against: The run that the others are compared with.
        others: Their labels.
        figures: What was tested.
        users: Whose rankings were compared.
        rows: Whose predictions were compared.
    """
    among = " and ".join(
        f"{number:,} {unit}"
        for unit, number in (("users", users), ("rows", rows))
        if any(figure.unit == unit for figure in figures)
    )
    for label in others:
        yield " ".join(_about(label, against, figures, among))


def joined(names: Sequence[str]) -> str:
    """Join names as a sentence does: a, b and c."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _about(label: str, against: str, figures: Sequence[Figure], among: str) -> Iterator[str]:
    by: dict[Verdict, list[str]] = {"better": [], "worse": [], "noise": []}
    for figure in figures:
        by[figure.differences[label].verdict].append(figure.title)
    if not by["better"] and not by["worse"]:
        what = "the difference is" if len(figures) == 1 else f"all {len(figures)} differences are"
        yield f"{label} and {against} cannot be told apart: {what} what chance gives among {among}."
        return
    parts = [f"{verdict} by {joined(by[verdict])}" for verdict in ("better", "worse") if by[verdict]]
    yield (
        f"{label} is {' and '.join(parts)} than {against}."
        if len(parts) == 1
        else (f"Than {against}, {label} is {', but '.join(parts)}.")
    )
    if by["noise"]:
        yield f"They cannot be told apart by {joined(by['noise'])} among {among}."
