"""The HTML page of a study."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from markupsafe import Markup

from recsys_cli.config import yaml12
from recsys_cli.metrics.named import figure
from recsys_cli.page import Axis, Headline, LineSeries, chart, render
from recsys_cli.tuning.trial import caveat

Entry = Mapping[str, Any]
_FINISHED, _BEST, _OTHERS = 1, 2, 3
_ROOM = 50
"""Characters available for the labels of an axis of choices."""


def plot_history(entries: Sequence[Entry], *, metric: Axis, better: str) -> Markup:
    """Draw the metric of each trial and the best value so far, by direction "higher", "lower" or "one" (closest to 1)."""
    in_order = sorted(entries, key=lambda entry: entry["trial"])
    finished = [entry for entry in in_order if entry["state"] == "finished" and entry["value"] is not None]
    best = accumulate((entry["value"] for entry in finished), lambda one, two: _better(one, two, better))
    marks = [
        *_dots(in_order, lambda entry: entry["trial"]),
        LineSeries([entry["trial"] for entry in finished], list(best), name="best so far", color=_BEST),
    ]
    return chart("Metric of each trial", marks, x=Axis("trial", low=1), y=metric)


def plot_epochs(entries: Sequence[Entry], *, metric: Axis) -> Markup:
    """Draw the metric over epochs, with the best trial, the first, on top; empty for single-epoch trials."""
    curves = [[(epoch, y) for epoch, y in enumerate(entry["curve"], start=1) if y is not None] for entry in entries]
    if not entries or max(map(len, curves)) < 2:
        return Markup("")
    best, *others = [([x for x, _ in points], [y for _, y in points]) for points in curves]
    marks = [
        LineSeries(*points, name="" if index else "others", thin=True, color=_OTHERS)
        for index, points in enumerate(others)
    ]
    marks.append(LineSeries(*best, name="best", markers=True, color=_BEST))
    return chart("Learning curves of the trials", marks, x=Axis("epoch"), y=metric)


def plot_over_key(key: str, values: Mapping[str, Any], entries: Sequence[Entry], *, metric: Axis) -> Markup:
    """Draw the metric of the trials over the values of one key and its search space."""
    choices = [yaml12.quoted(choice) for choice in values.get("choices", ())]
    entries = [entry for entry in entries if key in entry["changes"]]
    if not choices:
        axis = Axis(key, kind="log" if values.get("log") else "linear", low=values["low"], high=values["high"])
        return chart(f"The metric over {key}", _dots(entries, lambda entry: entry["changes"][key]), x=axis, y=metric)
    longest = max(4, _ROOM // len(choices))
    names = [choice if len(choice) <= longest else f"{choice[: longest - 1]}…" for choice in choices]
    dots = _dots(entries, lambda entry: choices.index(yaml12.quoted(entry["changes"][key])))
    return chart(f"The metric over {key}", dots, x=Axis(key, kind="names", names=names), y=metric)


def _dots(entries: Sequence[Entry], x_of: Any) -> list[LineSeries]:
    marks = []
    for state, name, color in (("pruned", "pruned, at its last epoch", _OTHERS), ("finished", "finished", _FINISHED)):
        chosen = [entry for entry in entries if entry["state"] == state and entry["value"] is not None]
        x, y = [x_of(entry) for entry in chosen], [entry["value"] for entry in chosen]
        marks.append(LineSeries(x, y, name=name, joined=False, color=color))
    return marks


def _better(one: float, two: float, better: str) -> float:
    if better == "one":
        return min(one, two, key=lambda value: abs(value - 1))
    return max(one, two) if better == "higher" else min(one, two)


def show(study: Mapping[str, Any], *, data: str, config: str) -> str:
    """Render the report of `facts.gather`, with the metric, as a self-contained HTML document; `config` is YAML."""
    metric, entries = Axis(f"valid {study['metric']['name']}"), study["ranking"]
    tried = [entry for entry in entries if entry["state"] in {"finished", "pruned"}]
    return render(
        "tune.html.j2",
        package=__package__,
        study=study,
        data=data,
        config=config,
        headlines=list(_headlines(study)),
        caveat=caveat(study),
        head=["trial", study["metric"]["name"], "state", *study["space"], "epochs", "seconds"],
        rows=[_row(entry, list(study["space"])) for entry in entries],
        failures=[(entry["trial"], entry["message"]) for entry in entries if entry["state"] == "failed"],
        history=plot_history(tried, metric=metric, better=study["metric"]["better"]),
        epochs=plot_epochs(tried, metric=metric),
        over={key: plot_over_key(key, values, tried, metric=metric) for key, values in study["space"].items()},
    )


def _headlines(study: Mapping[str, Any]) -> Iterator[Headline]:
    counts, best = study["trials"], study["best"]
    if best is not None:
        yield Headline(f"best {study['metric']['name']}", figure(best["value"]), f"trial {best['trial']}")
    yield Headline("finished", str(counts["finished"]), f"of {counts['wanted']} trials")
    for state, remark in (("pruned", "stopped early"), ("running", "unfinished"), ("failed", "see below")):
        if counts[state]:
            yield Headline(state, str(counts[state]), remark)


def _row(entry: Mapping[str, Any], keys: list[str]) -> list[str]:
    tried = [_value(entry["changes"][key]) if key in entry["changes"] else "" for key in keys]
    seconds = "" if entry["seconds"] is None else f"{entry['seconds']:,.1f}"
    return [str(entry["trial"]), figure(entry["value"]), entry["state"], *tried, str(entry["epochs"]), seconds]


def _value(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else yaml12.quoted(value)
