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

Verdict = Literal["above", "level", "below", "not comparable", "not measured", "not run"]

BASELINES = ("ease", "popularity")
"""Models of ours next to each published figure, as models of the bench or as baselines of its evaluations."""

LEVEL_NOTE = (
    "Published figures have no interval: ours is level if the figure lies in our 95 % interval over users and seeds, "
    "and above or below otherwise. A published model without a counterpart is compared with the best of ours on the test rows."
)


class PublishedFigure(Frozen):
    """A published figure, our value of the same metric, and the verdict on ours."""

    metric: str
    published: float
    ours: Estimate | None
    verdict: Verdict
    baselines: dict[str, Verdict]
    """Verdict on our EASE and popularity."""


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
    verified: Literal["digest", "rows"] | None
    """What equals the published data: the files by digest, or the splits by number of rows. None: neither is published."""
    models: tuple[PublishedModel, ...]

    @property
    def data_in_words(self) -> str:
        """State of the data in one sentence."""
        if self.differences:
            return f"Not the published data, so nothing here compares with it: {'; '.join(self.differences)}."
        if self.verified == "digest":
            return "The files equal the published files by digest."
        if self.verified == "rows":
            return "The numbers of rows equal the published ones; without a published digest the rows are not verified."
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
    """Return headings and cells of a table with published models and ours, best first by the first metric.

    A published row has the verdicts on ours, EASE and popularity by the first metric; without a figure of it, by the first metric
    with one, named in the cells.
    """
    rows: list[tuple[float, list[str]]] = []
    for one in published.models:
        figures = {figure.metric: figure for figure in one.figures}
        cells = [f"{figures[name].published:.4f}" if name in figures else "–" for name in metrics]
        first = next((figures[name] for name in metrics if name in figures), one.figures[0])
        best = figures[metrics[0]].published if metrics[0] in figures else -math.inf
        by = "" if first.metric == metrics[0] else f"({title_of(first.metric)})"
        verdicts = [_words(first.verdict, one.ours, by), *(_words(first.baselines[name], by=by) for name in BASELINES)]
        rows.append((best, [one.model, "published", *cells, *verdicts]))
    for row in standings:
        if not row.is_baseline or row.label in BASELINES:
            scores = [row.scores[name].value for name in metrics]
            cells = ["–" if value is None else f"{value:.4f}" for value in scores]
            best = -math.inf if scores[0] is None else scores[0]
            empty = [""] * (1 + len(BASELINES))
            kind = "ours" if not row.is_baseline else "partial baseline" if row.is_partial else "baseline"
            rows.append((best, [row.label, kind, *cells, *empty]))
    rows.sort(key=lambda row: -row[0])
    heads = [
        "model",
        "",
        *map(title_of, metrics),
        *(f"{name} is ({title_of(metrics[0])})" for name in ("ours", *BASELINES)),
    ]
    return heads, [cells for _, cells in rows]


def _words(verdict: Verdict, of: str = "", by: str = "") -> str:
    """Return a verdict for tables, of a model and by a metric: a dash if there is none."""
    return f"{of} {verdict} {by}".strip() if verdict in {"above", "level", "below"} else "–"


def _sentence(ours: str, metric: str, verdicts: Sequence[tuple[str, Verdict]]) -> str:
    names = {
        kind: ", ".join(model for model, verdict in verdicts if verdict == kind) for kind in dict(verdicts).values()
    }
    words = {
        "above": "above", "level": "level with", "below": "below", "not comparable": "not comparable with",
        "not measured": "not in bench.metrics; to compare with", "not run": "not run; to compare with",
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
    names: Mapping[str, str],
    label: str,
    rows: Mapping[str, int],
    digests: Mapping[str, bool | None],
) -> PublishedComparison:
    """Compare the published figures of a protocol with the results of a bench.

    Args:
        protocol: The published figures.
        standings: Our models and baselines, best first.
        names: Model name of each label of the bench.
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
    partial = [row.label for row in standings if row.is_partial]
    standings = [row for row in standings if not row.is_partial]
    baselines = {name: _find(name, standings, names) for name in BASELINES}
    models = []
    for one in protocol.published:
        ours = _find(one.ours, standings, names)
        figures = [
            _figure(f"{label}{metric}", value, ours, baselines, comparable=not differences)
            for metric, value in one.figures.items()
        ]
        called = ours.label if ours is not None else one.ours or "ours"
        models.append(PublishedModel(model=one.model, source=one.source, ours=called, figures=tuple(figures)))
    return PublishedComparison(
        paper=protocol.paper,
        notes=(*protocol.notes, *map(_of_partial, partial)),
        differences=tuple(differences),
        verified="digest" if any(digests.values()) else "rows" if protocol.rows else None,
        models=tuple(models),
    )


def _of_partial(name: str) -> str:
    return f"the baseline {name} leaves out items, so it has no verdict; {name} in bench.models has one"


def _find(name: str | None, standings: Sequence[LeaderboardRow], names: Mapping[str, str]) -> LeaderboardRow | None:
    """Return the best row of a model, or else the row with a label; without a name the best of our models."""
    of_model = (row for row in standings if not row.is_baseline and name in {None, names.get(row.label)})
    labeled = (row for row in standings if row.label == name)
    return next(of_model, None) or next(labeled, None)


def _figure(
    metric: str,
    published: float,
    row: LeaderboardRow | None,
    baselines: Mapping[str, LeaderboardRow | None],
    *,
    comparable: bool,
) -> PublishedFigure:
    score = None if row is None else row.scores.get(metric)
    return PublishedFigure(
        metric=metric,
        published=published,
        ours=None if score is None else Estimate(value=score.value, low=score.low, high=score.high),
        verdict=_verdict(metric, published, row, comparable=comparable),
        baselines={
            name: _verdict(metric, published, baseline, comparable=comparable) for name, baseline in baselines.items()
        },
    )


def _verdict(metric: str, published: float, row: LeaderboardRow | None, *, comparable: bool) -> Verdict:
    if row is None:
        return "not run"
    score = row.scores.get(metric)
    if score is None:
        return "not measured"
    if not comparable or score.value is None or score.interval is None:
        return "not comparable"
    low, high = score.interval
    return "level" if low <= published <= high else "above" if score.value > published else "below"
