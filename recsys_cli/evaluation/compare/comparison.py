"""What a comparison found, as frozen types: the treaty between testing, --json, the table, the page and LaTeX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from recsys_cli.evaluation.compare.outcomes import Outcomes, Unit
from recsys_cli.evaluation.compare.paired import PairedTest, holm
from recsys_cli.evaluation.result import Frozen
from recsys_cli.evaluation.selection import Selection, marked
from recsys_cli.metrics.metric import Better
from recsys_cli.metrics.named import better_of, title_of

if TYPE_CHECKING:
    from recsys_cli.etl.frames import Library

LEVEL = 0.05
"""A difference counts where chance gives one as large less often than this, after Holm's correction."""

Verdict = Literal["better", "worse", "noise"]


class Difference(Frozen):
    """How far a run is from the one it is compared with, by one figure."""

    value: float
    """The run's figure less the other's."""
    low: float
    """Lower end of the 95 % interval."""
    high: float
    """Upper end of the interval."""
    p: float
    """How often chance alone gives a difference that is as large."""
    p_holm: float
    """The same, corrected for the number of tests."""
    verdict: Verdict
    """Of the run: `noise` where either p_holm is not below 0.05 or the interval holds zero."""


class Figure(Frozen):
    """One figure of all runs."""

    metric: str
    """Its name, such as `ndcg@10`."""
    title: str
    """As in tables."""
    unit: Unit
    """What it is a mean over."""
    better: Better | None
    """Which values are better."""
    values: dict[str, float]
    """By run."""
    differences: dict[str, Difference]
    """By run, but for the one that the others are compared with."""


class ComparedRun(Frozen):
    """One of the runs."""

    label: str
    """What it is called here: its model, and the end of its name where two have the same."""
    run: str
    """Name of its folder."""
    model: str
    """Name of its model."""
    data: str
    """Name of the prepared data that it was trained on."""
    dataset: str
    """What that data is called."""
    selected: tuple[Selection, ...] = ()
    """What the measured rows chose of this run: then its figures are too good."""


class Comparison(Frozen):
    """Two or more runs on the same problem."""

    against: str
    """Label of the run that the others are compared with."""
    runs: tuple[ComparedRun, ...]
    """All of them, that one first."""
    split: str
    """`valid` or `test`."""
    users: int
    """Users whose rankings were compared."""
    rows: int
    """Rows whose predictions were compared."""
    figures: tuple[Figure, ...]
    """Rankings first, then rows."""
    tests: int
    """How many tests were made: what p is corrected for."""
    sentences: tuple[str, ...]
    """What came of it, in words."""
    protocol: dict[str, str]
    """How it was measured, in words."""
    notes: tuple[str, ...] = ()
    """What a reader has to know."""

    def to_frame(self, library: Library = "polars") -> Any:
        """Return all figures as a DataFrame of `polars` or `pandas`, or as an Arrow table (`arrow`).

        Columns: run, metric, value, and of the difference to the first run: difference, low, high, p_holm, verdict.
        """
        from recsys_cli.etl.frames import rows_to_frame

        names = ("run", "metric", "value", "difference", "low", "high", "p_holm", "verdict")
        rows = (
            (run, figure.metric, value, *_tested(figure.differences.get(run)))
            for figure in self.figures
            for run, value in figure.values.items()
        )
        return rows_to_frame(names, rows, library)

    @property
    def others(self) -> tuple[str, ...]:
        """Labels of the runs that are compared with the first."""
        return tuple(run.label for run in self.runs[1:])

    def called(self, label: str) -> str:
        """Return what tables call a run: its label, marked where the measured rows chose something of it."""
        return marked(label, next(run.selected for run in self.runs if run.label == label))


def figures_of(
    systems: Mapping[str, Outcomes], metrics: Sequence[str], *, resamples: int, seed: int
) -> tuple[Figure, ...]:
    """Test all systems against the first, by all figures; the tests are one family.

    Args:
        systems: By label; on the same users and rows.
        metrics: Figures that all of them have.
        resamples: For the bootstrap over users.
        seed: Decides its draws.
    """
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
                label: _difference(found[metric], corrected[label, metric], better_of(metric))
                for label, found in tested.items()
            },
        )
        for metric in metrics
    )


def verdict_of(tested: PairedTest, p_holm: float, better: Better | None) -> Verdict:
    """Say whether a difference counts: only where the corrected test and the interval agree on it."""
    if p_holm >= LEVEL or tested.low <= 0 <= tested.high:
        return "noise"
    return "better" if (tested.value > 0) == (better != "lower") else "worse"


def _difference(tested: PairedTest, p_holm: float, better: Better | None) -> Difference:
    verdict = verdict_of(tested, p_holm, better)
    return Difference(value=tested.value, low=tested.low, high=tested.high, p=tested.p, p_holm=p_holm, verdict=verdict)


def _tested(found: Difference | None) -> tuple[float | str | None, ...]:
    return (None,) * 5 if found is None else (found.value, found.low, found.high, found.p_holm, found.verdict)
