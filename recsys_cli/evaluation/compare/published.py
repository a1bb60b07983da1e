"""Published figures next to the results of a bench, with a verdict for each.

Published figures come without intervals. A figure inside the 95 % interval of our result, over users and seeds, is level with it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from recsys_cli.evaluation.result import Estimate, Frozen
from recsys_cli.metrics.named import title_of

if TYPE_CHECKING:
    from recsys_cli.config.protocol import ProtocolConfig
    from recsys_cli.evaluation.compare.leaderboard import LeaderboardRow

Verdict = Literal["above", "level", "below", "not comparable", "not run"]

LEVEL_NOTE = (
    "Published figures have no interval: ours is level if the figure lies in our 95 % interval over users and seeds, "
    "and above or below otherwise."
)


class PublishedFigure(Frozen):
    """A published figure, our value of the same metric, and the verdict on ours."""

    metric: str
    published: float
    ours: Estimate | None
    verdict: Verdict


class PublishedModel(Frozen):
    """A published model and the model of ours to compare."""

    model: str
    source: str
    ours: str
    figures: tuple[PublishedFigure, ...]


class PublishedComparison(Frozen):
    """The published models of a protocol against a leaderboard."""

    paper: str
    notes: tuple[str, ...]
    differences: tuple[str, ...]
    """Differences of the data from the published data: verdicts then have no meaning."""
    verified: bool
    """Whether the data equals the published data by digest or number of rows."""
    models: tuple[PublishedModel, ...]

    @property
    def data_in_words(self) -> str:
        """State of the data in one sentence."""
        if self.differences:
            return f"Not the published data, so nothing here compares with it: {'; '.join(self.differences)}."
        if self.verified:
            return "The data equals the published data by digest or number of rows."
        return "The publishers give no digest and no number of rows, so the data is not verified."

    @property
    def sources(self) -> list[str]:
        """Sources of the figures, one line for each."""
        models: dict[str, list[str]] = {}
        for one in self.models:
            models.setdefault(one.source, []).append(one.model)
        return [f"{'; '.join(names)}: {source}" for source, names in models.items()]

    @property
    def sentences(self) -> list[str]:
        """The verdicts on our models by metric, one sentence each."""
        by_ours: dict[tuple[str, str], list[tuple[str, Verdict]]] = {}
        for one in self.models:
            for figure in one.figures:
                by_ours.setdefault((one.ours, figure.metric), []).append((one.model, figure.verdict))
        return [_sentence(ours, metric, verdicts) for (ours, metric), verdicts in by_ours.items()]


def one_table(
    standings: Sequence[LeaderboardRow], published: PublishedComparison, metrics: Sequence[str]
) -> tuple[list[str], list[list[str]]]:
    """Return headings and cells of a table with published models and ours, best first by the first metric."""
    rows: list[tuple[float, list[str]]] = []
    for one in published.models:
        figures = {figure.metric: figure for figure in one.figures}
        cells = [f"{figures[name].published:.4f}" if name in figures else "–" for name in metrics]
        verdict = next((figures[name].verdict for name in metrics if name in figures), "")
        best = figures[metrics[0]].published if metrics[0] in figures else -math.inf
        rows.append((best, [one.model, "published", *cells, "", f"{one.ours} {verdict}"]))
    for row in standings:
        if not row.is_baseline:
            scores = [row.scores[name].value for name in metrics]
            first = row.scores[metrics[0]]
            interval = (
                f"[{first.low:.4f}, {first.high:.4f}]" if first.low is not None and first.high is not None else ""
            )
            cells = ["–" if value is None else f"{value:.4f}" for value in scores]
            rows.append((-math.inf if scores[0] is None else scores[0], [row.label, "ours", *cells, interval, ""]))
    rows.sort(key=lambda row: -row[0])
    heads = ["model", "", *map(title_of, metrics), f"95 % interval of {title_of(metrics[0])}", "ours is"]
    return heads, [cells for _, cells in rows]


def _sentence(ours: str, metric: str, verdicts: Sequence[tuple[str, Verdict]]) -> str:
    names = {
        kind: ", ".join(model for model, verdict in verdicts if verdict == kind) for kind in dict(verdicts).values()
    }
    words = {
        "above": "above", "level": "level with", "below": "below", "not comparable": "not comparable with",
        "not run": "not run; to compare with",
    }  # fmt: skip
    return (
        f"{ours}, {title_of(metric)}: "
        + "; ".join(f"{words[kind]} {names[kind]}" for kind in words if kind in names)
        + "."
    )


def compare_published(
    protocol: ProtocolConfig,
    standings: Sequence[LeaderboardRow],
    *,
    first: str,
    label: str,
    rows: Mapping[str, int],
    digests: Mapping[str, bool | None],
) -> PublishedComparison:
    """Compare the published figures of a protocol with the results of a bench.

    Args:
        protocol: The published figures.
        standings: Our models and baselines.
        first: Label of our model to compare with, where the protocol names no other.
        label: Prefix of the names of ranking metrics.
        rows: Number of rows by split of our data.
        digests: Whether each raw file has its published digest; None where none is published.
    """
    differences = [
        *(
            f"{split} has {rows[split]:,} rows, published are {number:,}"
            for split, number in protocol.rows.items()
            if rows[split] != number
        ),
        *(f"{file} has another digest than published" for file, equal in digests.items() if equal is False),
    ]
    by_label = {one.label: one for one in standings}
    models = []
    for one in protocol.published:
        ours = one.ours or first
        figures = [
            _figure(f"{label}{metric}", value, by_label.get(ours), comparable=not differences)
            for metric, value in one.figures.items()
        ]
        models.append(PublishedModel(model=one.model, source=one.source, ours=ours, figures=tuple(figures)))
    return PublishedComparison(
        paper=protocol.paper,
        notes=protocol.notes,
        differences=tuple(differences),
        verified=bool(protocol.rows) or any(digests.values()),
        models=tuple(models),
    )


def _figure(metric: str, published: float, row: LeaderboardRow | None, *, comparable: bool) -> PublishedFigure:
    score = None if row is None else row.scores.get(metric)
    ours = None if score is None else Estimate(value=score.value, low=score.low, high=score.high)
    verdict: Verdict = "not run" if row is None else "not comparable"
    if comparable and ours is not None and ours.value is not None and ours.interval is not None:
        low, high = ours.interval
        verdict = "level" if low <= published <= high else "above" if ours.value > published else "below"
    return PublishedFigure(metric=metric, published=published, ours=ours, verdict=verdict)
