"""Verdicts of a comparison in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from recsys_cli.evaluation.compare.comparison import Figure, Verdict

METHOD = (
    "Rows of one user are not independent, so users are the sampling unit. Ranking metrics: intervals of the paired bootstrap "
    "over users, p-values of the t test of the users' differences. AUC: DeLong's test with placements summed by user. Log loss, "
    "errors and metrics per impression: paired t-test of sums by user. p-values are Holm-corrected for all tests of the table, all "
    "metrics and runs. recsys evaluate tests fewer: one metric, fixed beforehand, against its baselines. A difference significant "
    "there may not be here. A difference is significant if its corrected p-value is below 0.05 and its 95 % confidence interval "
    "excludes zero."
)


def verdicts(against: str, others: Sequence[str], figures: Sequence[Figure], **units: int) -> Iterator[str]:
    """Yield the verdict on each run other than the reference; `units` are the numbers of users, rows and impressions."""
    sample = " and ".join(
        f"{number:,} {unit}" for unit, number in units.items() if any(figure.unit == unit for figure in figures)
    )
    sample = "; ".join(filter(None, [sample, correction(len(others) * len(figures))]))
    for label in others:
        yield " ".join(_about(label, against, figures, sample))


def correction(tests: int) -> str:
    """Return Holm's correction in words; empty for one test."""
    return f"corrected for {tests:,} comparisons" if tests > 1 else ""


def joined(names: Sequence[str]) -> str:
    """Join names as in a sentence: a, b and c."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _about(label: str, against: str, figures: Sequence[Figure], sample: str) -> Iterator[str]:
    by: dict[Verdict, list[str]] = {"better": [], "worse": [], "noise": []}
    for figure in figures:
        by[figure.differences[label].verdict].append(figure.title)
    if not by["better"] and not by["worse"]:
        metrics = f"by {figures[0].title}" if len(figures) == 1 else f"by any of {len(figures)} metrics"
        yield f"{label} and {against} do not differ significantly {metrics} ({sample})."
        return
    parts = [f"significantly {verdict} by {joined(by[verdict])}" for verdict in ("better", "worse") if by[verdict]]
    yield f"Compared with {against}, {label} is {', but '.join(parts)}."
    if by["noise"]:
        yield f"No significant difference by {joined(by['noise'])} ({sample})."
