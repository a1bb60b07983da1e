"""`recsys watch`: figures of a served recommender by day, and the days on which they have changed."""

from __future__ import annotations

import json
import math
import re
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from markupsafe import Markup

from recsys_cli.errors import MissingArtifactError, listed
from recsys_cli.etl.calendar import DAY, WEEK, Day, added, moments
from recsys_cli.evaluation.sequential import WARM_UP, Change, changes_of
from recsys_cli.metrics.named import better_of
from recsys_cli.page import Axis, LineSeries, chart, day, render
from recsys_cli.serving.feedback.log import current_files
from recsys_cli.stages.daily import State
from recsys_cli.workspace import Workspace, write_text

_LEVEL, _LEAST = 0.01, 0.03
"""Chance of a false alarm of all figures, in a year; and smallest error of a prediction, relative or in standard deviations."""
_RARE, _TINY, _FEWEST = 0.002, 1e-4, 100
"""Share and ratio that count as zero; rows below which a sample of requests says nothing."""
_UNKNOWN, _NULLS, _SKEW, _BEYOND = 0.5, 0.2, 1.0, 3
"""Limits of requests: share of unknown values; differences from the table, of the share of nulls and of a mean in standard
deviations; and the days in a row above them."""
_PUT = re.compile(rb'(?:"label":([-+.\de]+).*?)?"kind":"put","at":(\d+)')
_HELP = {
    "rows": "look at the newest rows of the table, and at what writes them",
    "model": "recsys rollback {name} serves the version before, recsys update --full trains anew",
    "server": "look at the log of the server, and at GET /metrics",
    "requests": "compare what the page sends with the table: spelling of ids, units, missing values",
    "feedback": "look whether the page shows its lists, and sends clicks",
}
Value = float | None


@dataclass(frozen=True)
class Figure:
    """A figure by day.

    Attributes:
        about: What it is of: rows, model, server, requests or feedback.
        kind: How values are shown and compared: counts and ratios by logarithms, shares by logits, numbers by `scale`.
        first: Day since 1970 of the first value.
        values: One a day; None for a day without.
        scale: Standard deviation of single values.
        limit: Highest value, of requests.
        changes: Changes; the search goes on after each one.
    """

    name: str
    about: str
    kind: Literal["count", "share", "ratio", "number"]
    first: int
    values: tuple[Value, ...]
    scale: float = 1.0
    limit: float = math.inf
    changes: tuple[Change, ...] = ()

    def compared(self, value: Value) -> Value:
        """Return a value on a scale with even noise."""
        if value is None or self.kind == "number":
            return value if value is None else value / (self.scale or 1.0)
        if self.kind == "share":
            return math.log((value + _RARE) / (1 - value + _RARE))
        return math.log1p(value) if self.kind == "count" else math.log(value + _TINY)

    def watched(self, level: float) -> Figure:
        """Return the figure with its changes."""
        found = changes_of([self.compared(one) for one in self.values], level=level, least=_LEAST)
        known = [(at, one) for at, one in enumerate(self.values) if one is not None]
        inside = max((at for at, (_, one) in enumerate(known) if abs(one) <= self.limit), default=-1)
        if len(beyond := known[inside + 1 :]) >= _BEYOND:
            found.append(Change(beyond[0][0], len(self.values) - 1))
        return replace(self, changes=tuple(found))

    @property
    def change(self) -> Change | None:
        """The change of the last week, or to a count of nothing at all since then; None without."""
        last = self.changes[-1] if self.changes else None
        if last is None or len(self.values) - last.found <= WEEK:
            return last
        return last if self.kind == "count" and not any(self.values[last.first :]) else None

    @property
    def days(self) -> int:
        """Number of days with a value, since the last change."""
        return sum(one is not None for one in self.values[self.changes[-1].first if self.changes else 0 :])

    @property
    def state(self) -> str:
        """Whether it has changed, is as usual, or has too few days."""
        if self.change is not None:
            return "changed"
        return "as usual" if self.days > WARM_UP else f"too few days: {self.days} of {WARM_UP + 1}"

    @property
    def ends(self) -> tuple[Value, Value]:
        """Mean since the change or on the last day, and the median on the same weekdays of the four weeks before."""
        first = len(self.values) - 1 if self.change is None else self.change.first
        days = range(first, min(len(self.values), first + WEEK))
        before = [at - WEEK * back for at in days for back in range(1, 5) if at >= WEEK * back]
        now, past = ([one for at in part if (one := self.values[at]) is not None] for part in (days, before))
        return statistics.fmean(now) if now else None, statistics.median(past) if past else None

    @property
    def size(self) -> float:
        """Size of the change, comparable between figures."""
        now, usual = map(self.compared, self.ends)
        return abs(now - usual) if now is not None and usual is not None else 0.0

    def sentence(self, name: str) -> str:
        """Return what changed, when, by how much, and what helps; without a change the state."""
        if (change := self.change) is None:
            return self.state
        (now, usual), begin = self.ends, self.date(change.first)
        moved = f"is {self.shown(now)} since {begin}, above its limit of {self.shown(self.limit)}"
        if abs(now or 0) <= self.limit:
            verb = "fell" if (usual or 0) > (now or 0) else "rose"
            moved = (
                f"{verb} from {self.shown(usual)} to {self.shown(now)} on {begin}, found on {self.date(change.found)}"
            )
        return f"{self.name} {moved}: {_HELP[self.about].format(name=name)}"

    def date(self, at: int) -> str:
        """Return a day of the values as a date."""
        return day((self.first + at) * DAY)

    def shown(self, value: Value) -> str:
        """Return a value as text."""
        if value is None:
            return "–"
        forms = {"share": f"{100 * value:.3g} %", "count": f"{value:,.0f}"}
        return forms.get(self.kind, f"{value:.4g}")

    def drawn(self) -> Markup:
        """Draw the figure by day, with the first days of its changes."""
        known = [(at, one) for at, one in enumerate(self.values) if one is not None]
        changed = [(one.first, value) for one in self.changes if (value := self.values[one.first]) is not None]
        marks = [LineSeries([(self.first + at) * DAY for at, _ in part], [one for _, one in part], name, joined=part is known)
                 for name, part in (("by day", known), ("first day of a change", changed))]  # fmt: skip
        up = Axis("", "share" if self.kind == "share" else "linear", low=None if self.kind == "number" else 0.0)
        return chart(self.name, marks, x=Axis("", "time"), y=up)


@dataclass(frozen=True)
class Watch:
    """What `recsys watch` shows: figures, the largest changes first; notes; the served version; and the page."""

    name: str
    figures: tuple[Figure, ...]
    notes: tuple[str, ...]
    served: int | None
    page: Path

    @property
    def changed(self) -> list[Figure]:
        """The changed figures."""
        return [one for one in self.figures if one.change is not None]


def watch(name: str, workspace: Workspace, *, feedback: Path | None = None, now: float | None = None) -> Watch:
    """Look at all figures, and write the page; they share the level for a year of looks.

    The feedback log has the traffic of the server too; it is that of the workspace by default.

    Raises:
        MissingArtifactError: No update has this name.
    """
    path = workspace.root / "daily" / name / "state.json"
    if not path.is_file():
        known = sorted(one.parent.name for one in path.parent.parent.glob("*/state.json"))
        hint = f"the names are {listed(known)}" if known else "recsys update CONFIG comes first"
        raise MissingArtifactError(f"no update has the name {name}", hint=hint)
    state, folder = State.read(path), feedback or workspace.root / "feedback"
    today = int((time.time() if now is None else now) // DAY)
    figures = [*_of_rows(state, today), *_of_models(state), *_of_server(folder, state, today)]
    figures = [one.watched(_LEVEL / len(figures)) for one in figures]
    figures.sort(key=lambda one: (one.change is None, one.days <= WARM_UP, -one.size))
    link, notes = workspace.root / "published" / name / "current", tuple(_notes(state, folder, figures, today))
    served = int(link.readlink().name) if link.is_symlink() else None
    found = Watch(name, tuple(figures), notes, served, path.with_name("watch.html"))
    write_text(found.page, render("watch.html.j2", package=__package__, watch=found, level=_LEVEL, least=_LEAST))
    return found


def _notes(state: State, folder: Path, figures: Sequence[Figure], today: int) -> Iterator[str]:
    if state.refused is not None:
        found = [f"{one['check']}: {one['text']}" for one in state.refused["problems"]] or [
            "the gate refused the model"
        ]
        yield f"the last update was refused: {'; '.join(found)}"
    if state.history and (age := today - int(state.history[-1]["at"] // DAY)) > 1:
        yield f"no new rows were taken for {age} days"
    if not any(one.about == "server" for one in figures):
        yield f"{folder} has no day of traffic yet: recsys serve writes it, watch --feedback DIR reads it"
    if number := sum(one.change is None and one.days <= WARM_UP for one in figures):
        yield f"{number} of {len(figures)} figures have too few days, which says nothing on them"


def _figure(name: str, about: str, kind: Any, values: Mapping[int, Value], **options: Any) -> Iterator[Figure]:
    """Yield the figure of values by day; none without a value."""
    known = {at: one for at, one in values.items() if one is not None and math.isfinite(one)}
    if known:
        days = range(min(known), max(known) + 1)
        yield Figure(name, about, kind, days.start, tuple(known.get(at) for at in days), **options)


def _shares(part: Mapping[int, float], whole: Mapping[int, float]) -> dict[int, Value]:
    return {at: part.get(at, 0) / number for at, number in whole.items() if number}


def _of_rows(state: State, today: int) -> Iterator[Figure]:
    """Yield the figures of the interactions, on days that are over: a later one has rows, or the update came after them."""
    taken = [int(one["at"] // DAY) for one in state.history]
    days = [one for one in state.days if one.day < max([*taken[-1:], state.days[-1].day])]
    if not days:
        return
    rows: dict[int, float] = {one.day: one.rows for one in days}
    idle = today - taken[-1] - max([1, *(later - one for one, later in pairwise(taken))]) if taken else 0
    every = range(days[0].day, days[-1].day + 1 + max(0, idle))
    yield from _figure("rows", "rows", "count", {at: rows.get(at, 0) for at in every})
    updated = {at: number for at, number in rows.items() if taken and at > state.history[0]["day"]}
    for role in ("user", "item"):  # a first update counts new ones in another way
        new = _shares({one.day: one.unknown.get(role, 0) for one in days}, updated)
        yield from _figure(f"rows with a new {role}", "rows", "share", new)
    yield from _figure("rows of one user", "rows", "share", _shares({one.day: one.most for one in days}, rows))
    for name in days[-1].nulls:
        nulls = _shares({one.day: one.nulls.get(name, 0) for one in days}, rows)
        yield from _figure(f"nulls of {name}", "rows", "share", nulls)
    for name in days[-1].sums:
        means, scale = {one.day: _moments(one, name)[0] for one in days}, _moments(added(days[:WARM_UP]), name)[1]
        yield from _figure(f"mean of {name}", "rows", "number", means, scale=scale)


def _moments(one: Day, name: str) -> tuple[Value, float]:
    """Return mean and deviation of a column; None and 0 without values."""
    sums = one.sums.get(name)
    return moments(sums) if sums and sums[0] else (None, 0.0)


def _of_models(state: State) -> Iterator[Figure]:
    """Yield the figures of the trained models on their held-out rows, since the settings are the present ones."""
    same = [one for one in state.history if all(one[key] == state.history[-1][key] for key in ("settings", "metric"))]
    if not same:
        return
    metric, spread = same[-1]["metric"], statistics.fmean(one.get("spread") or 0.0 for one in same[:WARM_UP])
    kind = "ratio" if better_of(metric) == "lower" else "share"
    kinds = {"value": (metric, kind), "coverage": ("coverage@10", "share"), "score": ("mean score", "number")}
    for key, (name, own) in kinds.items():
        yield from _figure(name, "model", own, {one["day"]: one.get(key) for one in same}, scale=spread)


def _of_server(folder: Path, state: State, today: int) -> Iterator[Figure]:
    """Yield the figures of requests and feedback; the first day of a server is no whole one."""
    traffic: dict[int, list[dict[str, Any]]] = {}
    for line in (line for path in folder.glob("traffic-*.jsonl") for line in path.read_text().splitlines()):
        with suppress(json.JSONDecodeError):  # of a kill
            traffic.setdefault(int((one := json.loads(line))["from"] // DAY), []).append(one)
    clicks, start = _positives(folder), state.days[0].day if state.days else 0
    whole, clicked = (range(max(start, min(one, default=today) + 1), today) for one in (traffic, clicks))

    def total(kind: str, chosen: str = "") -> dict[int, float]:
        """Return the sum by day of the numbers whose label matches."""
        parts = {at: [part.items() for one in traffic.get(at, ()) for part in [one[kind]]] for at in whole}
        return {at: sum(n for part in of for label, n in part if re.match(chosen, label)) for at, of in parts.items()}

    requests, answers = total("status"), total("source")
    yield from _figure("requests", "server", "count", requests)
    yield from _figure("failed requests", "server", "share", _shares(total("status", "5"), requests))
    yield from _figure("seconds of a request", "server", "ratio", _shares(total("seconds"), requests))
    yield from _figure(
        "answers of the fallback", "requests", "share", _shares(total("source", "popularity|none"), answers)
    )
    yield from _of_samples({at: added([Day(**one["sample"]) for one in traffic.get(at, ())]) for at in whole}, state)
    yield from _figure("positive feedback", "feedback", "count", {at: clicks[at] for at in clicked})
    yield from _figure("positive feedback per answer", "feedback", "ratio", _shares(clicks, answers) if clicks else {})


def _of_samples(samples: Mapping[int, Day], state: State) -> Iterator[Figure]:
    """Yield the figures of sampled requests: unknown values, and differences from the rows of the four weeks before."""
    rows: dict[int, float] = {at: one.rows for at, one in samples.items() if one.rows >= _FEWEST}
    for name in sorted({name for one in samples.values() for name in one.unknown}):
        unknown = _shares({at: one.unknown.get(name, 0) for at, one in samples.items()}, rows)
        limit = math.inf if name == "user" else _UNKNOWN  # visitors may be new
        yield from _figure(f"requests with an unknown {name}", "requests", "share", unknown, limit=limit)
    trained = {at: added([one for one in state.days if at - 4 * WEEK < one.day <= at]) for at in rows}
    for name in sorted({name for one in samples.values() for name in one.nulls if name in state.days[-1].nulls}):
        nulls, skew = dict[int, Value](), dict[int, Value]()
        for at, of_rows in ((at, one) for at, one in trained.items() if one.rows and name in samples[at].nulls):
            nulls[at] = samples[at].nulls[name] / samples[at].rows - of_rows.nulls.get(name, 0) / of_rows.rows
            (mean, _), (usual, deviation) = _moments(samples[at], name), _moments(of_rows, name)
            skew[at] = (mean - usual) / deviation if mean is not None and usual is not None and deviation else None
        yield from _figure(f"nulls of {name} in requests", "requests", "number", nulls, limit=_NULLS)
        yield from _figure(f"skew of {name} in requests", "requests", "number", skew, limit=_SKEW)


def _positives(folder: Path) -> Counter[int]:
    """Return the positive feedback by day of its arrival, without a parse of each line, which takes minutes for millions."""
    puts = (one.groups() for path in current_files(folder) for one in _PUT.finditer(path.read_bytes()))
    return Counter(int(at) // 10**9 // DAY for label, at in puts if label is None or float(label) > 0)
