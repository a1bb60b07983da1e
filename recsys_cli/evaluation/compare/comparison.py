"""Comparison results as frozen types: the interface between tests, --json, tables and the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Literal

from recsys_cli.evaluation.compare.outcomes import Outcomes, Unit
from recsys_cli.evaluation.compare.paired import PairedTest, holm
from recsys_cli.evaluation.result import ByName, Frozen
from recsys_cli.evaluation.selection import Selection, marked
from recsys_cli.metrics.metric import Better
from recsys_cli.metrics.named import better_of, title_of
from recsys_cli.tabular import Tabular, rows_to_arrow

if TYPE_CHECKING:
    import pyarrow as pa

LEVEL = 0.05
"""Significance level after Holm's correction."""

Verdict = Literal["better", "worse", "noise"]


class Difference(Frozen):
    """Difference of a run from the reference in one metric, with its 95 % confidence interval and two-sided p-value."""

    value: float
    """The run's value minus the reference's."""
    low: float
    high: float
    p: float
    p_holm: float
    verdict: Verdict
    """Verdict on the run: `noise` if p_holm is at least 0.05 or the interval contains zero."""


class Figure(Frozen):
    """One metric of all runs."""

    metric: str
    title: str
    unit: Unit
    """Unit of the mean."""
    better: Better | None
    values: dict[str, float]
    differences: dict[str, Difference]
    """Difference from the reference, by run; without the reference."""


class ComparedRun(Frozen):
    """One of the compared runs."""

    label: str
    """Label: the model, and the end of the run's name if models repeat."""
    run: str
    model: str
    data: str
    dataset: str
    selected: tuple[Selection, ...] = ()
    """Choices made on the evaluated rows: the run's metrics are then optimistic."""


class Comparison(Tabular, Frozen):
    """Two or more runs on the same evaluation task; `against` is the label of the reference."""

    against: str
    runs: tuple[ComparedRun, ...]
    """All runs, the reference first."""
    split: str
    users: int
    rows: int
    figures: tuple[Figure, ...]
    """Metrics, of rankings first, then pointwise."""
    tests: int
    """Number of tests in Holm's correction."""
    sentences: tuple[str, ...]
    protocol: dict[str, str]
    notes: tuple[str, ...] = ()

    def _to_arrow(self) -> pa.Table:
        """Return all metrics as an Arrow table.

        Columns: run, metric, value, and of the difference from the reference: difference, low, high, p_holm, verdict.
        """
        names = ("run", "metric", "value", "difference", "low", "high", "p_holm", "verdict")
        rows = (
            (run, figure.metric, value, *_columns(figure.differences.get(run)))
            for figure in self.figures
            for run, value in figure.values.items()
        )
        return rows_to_arrow(names, rows)

    @property
    def others(self) -> tuple[str, ...]:
        """Labels of all runs but the reference."""
        return tuple(run.label for run in self.runs[1:])

    def called(self, label: str) -> str:
        """Return a run's label for tables, marked if its metrics are optimistic."""
        runs = ByName({run.label: run for run in self.runs})
        return marked(label, runs[str(label)].selected)


def figures_of(
    systems: Mapping[str, Outcomes], metrics: Sequence[str], *, resamples: int, seed: int
) -> tuple[Figure, ...]:
    """Test all systems against the first, by all metrics on the same users and rows; the tests form one family."""
    (_, first), *others = systems.items()
    tested = {label: other.minus(first, metrics, resamples=resamples, seed=seed) for label, other in others}
    pairs = [(label, metric) for metric in metrics for label in tested]
    corrected = dict(zip(pairs, holm([tested[label][metric].p for label, metric in pairs]), strict=True))
    return tuple(
        Figure(
            metric=metric,
            title=title_of(metric),
            unit=first.metrics[metric],
            better=better_of(metric),
            values={label: outcomes.value(metric) for label, outcomes in systems.items()},
            differences={
                label: difference_of(tests[metric], corrected[label, metric], better_of(metric))
                for label, tests in tested.items()
            },
        )
        for metric in metrics
    )


def difference_of(tested: PairedTest, p_holm: float, better: Better | None) -> Difference:
    """Return a difference with its verdict: significant only if corrected test and interval agree."""
    verdict: Verdict = "better" if (tested.value > 0) == (better != "lower") else "worse"
    if p_holm >= LEVEL or tested.low <= 0 <= tested.high:
        verdict = "noise"
    return Difference(**asdict(tested), p_holm=p_holm, verdict=verdict)


def _columns(one: Difference | None) -> tuple[float | str | None, ...]:
    return (None,) * 5 if one is None else (one.value, one.low, one.high, one.p_holm, one.verdict)
