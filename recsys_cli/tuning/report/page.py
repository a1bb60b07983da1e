"""Renders the report of a study."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from recsys_cli.config import yaml12
from recsys_cli.page import Axis, Headline, render
from recsys_cli.tuning.facts import caveat
from recsys_cli.tuning.report import plots


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
        history=plots.history(tried, metric=metric, better=study["metric"]["better"]),
        epochs=plots.epochs(tried, metric=metric),
        over={key: plots.over_key(key, values, tried, metric=metric) for key, values in study["space"].items()},
    )


def _headlines(study: Mapping[str, Any]) -> Iterator[Headline]:
    counts, best = study["trials"], study["best"]
    if best is not None:
        yield Headline(f"best {study['metric']['name']}", _figure(best["value"]), f"trial {best['trial']}")
    yield Headline("finished", str(counts["finished"]), f"of {counts['wanted']} trials")
    for state, remark in (("pruned", "stopped early"), ("running", "unfinished"), ("failed", "see below")):
        if counts[state]:
            yield Headline(state, str(counts[state]), remark)


def _row(entry: Mapping[str, Any], keys: list[str]) -> list[str]:
    tried = [_value(entry["changes"][key]) if key in entry["changes"] else "" for key in keys]
    seconds = "" if entry["seconds"] is None else f"{entry['seconds']:,.1f}"
    return [str(entry["trial"]), _figure(entry["value"]), entry["state"], *tried, str(entry["epochs"]), seconds]


def _value(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else yaml12.quoted(value)


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"
