"""The config of a race's winner: its sections, and its text with the figures and the reasons as comments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recsys_cli.config import RunConfig, yaml12
from recsys_cli.evaluation.compare.leaderboard import LeaderboardRow
from recsys_cli.metrics.named import CutOff, find_metric
from recsys_cli.stages.race_result import Entrant, RaceOptions, RaceResult

_REPLACED = frozenset({"model", "train", "bench", "tune", "protocol"})
_ALL_ROWS = {"method": "random", "valid": 0.0, "test": 0.0}
_OF_THE_RACE = frozenset({"monitor", "devices", "early_stopping"})
"""Training options absent from the config of all rows."""
_LEAK = 0.99
"""AUC that suggests a column made from the label."""
SIMPLE = ("popularity", "ease")
"""Models to beat."""


def keeps_split(sections: Mapping[str, Any]) -> bool:
    """Whether the splits are files of their own, so that there is no training on all rows."""
    return sections.get("split", {}).get("method") == "files"


def race_sections(config: RunConfig, options: RaceOptions) -> dict[str, Any]:
    """Return the sections of a config without its model, with what is asked of the race."""
    values = config.model_dump(mode="json", exclude_unset=True)
    sections = {name: part for name, part in values.items() if part and name not in _REPLACED}
    metric = find_metric(options.metric)
    if isinstance(metric, CutOff) and metric.k not in config.evaluate.k:
        sections["evaluate"] = {**sections.get("evaluate", {}), "k": [*config.evaluate.k, metric.k]}
    if options.memory_mib is not None:
        sections["etl"] = {**sections.get("etl", {}), "memory_mib": max(256, options.memory_mib // 4)}
    return sections


def winner_sections(sections: Mapping[str, Any], winner: Entrant, epochs: int | None) -> dict[str, Any]:
    """Return the sections of the training on all rows, with the keys that are set; `epochs` None is of a model fitted at once."""
    model = {name: value for name, value in winner.model.items() if name != "train"}
    train = {name: value for name, value in winner.model["train"].items() if name not in _OF_THE_RACE}
    if epochs is not None:
        train |= {"epochs": epochs, "early_stopping": None}
    of_all_rows: dict[str, Any] = {}
    if not keeps_split(sections):
        evaluation = {name: value for name, value in sections.get("evaluate", {}).items() if name != "fold_in_targets"}
        of_all_rows = {"split": _ALL_ROWS, "evaluate": evaluation}
    found = {**sections, **of_all_rows, "model": model, "train": train}
    return {name: part for name, part in found.items() if part}


def head(metric: str) -> str:
    """Return the first words of a config of a race by a metric."""
    return f"# Chosen by recsys auto by {metric} in "


def config_text(sections: Mapping[str, Any], chosen: Mapping[str, Any], result: RaceResult) -> str:
    """Return the config of the leader as YAML: the sections `chosen` for all rows; the figures are of those of the race."""
    figures = {row.label: next(iter(row.scores.values())) for row in result.board}
    lines = [result.verdict, "", *(one.line(figures.get(one.label)) for one in result.entrants)]
    lines += ["", f"By {result.options.metric}: valid chose the model, and test chose nothing."]
    if not keeps_split(sections):
        on = "Trained on all rows" if result.on_all_rows else "For all rows, not trained on them yet"
        lines.append(f"{on}; the figures are of")
        kept = {name: sections[name] for name in ("split", "evaluate") if name in sections}
        lines += [f"  {name}: {yaml12.quoted(section)}" for name, section in kept.items()]
    comments = "".join(f"# {line}".rstrip() + "\n" for line in lines)
    time = f"{result.seconds / 60:.1f} of {result.options.minutes:g} min."
    return f"{head(result.options.metric)}{time}\n{comments}\n{yaml12.write(dict(chosen))}"


def verdict_on(winner: str, board: Sequence[LeaderboardRow]) -> str:
    """Return what test says of the winner, by tests corrected for the number of models."""
    own = next((row for row in board if row.label == winner), None)
    if own is None:
        return f"{winner} is best on valid; there was no time to test it."
    metric, score = next(iter(own.scores.items()))
    if score.value is None:
        return f"{winner} is best on valid; {metric} is undefined on test."
    best, *others = board
    if best is not own:
        return f"{winner} is best on valid; on test {best.label} is {_ahead(own)}."
    level = [row.label for row in others if row.is_same_as_best]
    untested = [row.label for row in others if row.from_best is None and row.scores[metric].value is not None]
    if untested:
        return f"{winner} is best on valid and on test; its differences from {', '.join(untested)} are not tested."
    if winner in SIMPLE or not level:
        worse = ", ".join(row.label for row in others if row.from_best is not None and row.label not in level)
        found = f"{winner} is significantly better than {worse}" if worse else f"{winner} is best, not measurably"
        return f"{found}; nothing tried beats it here." if winner in SIMPLE else f"{found}."
    simple = next((label for label in SIMPLE if label in level), None)
    beaten = f"nothing tried beats {simple} here" if simple else f"{level[0]} is level within noise"
    return f"{winner} is best, but not measurably: {beaten}."


def suspicion(metric: str, value: float | None) -> str:
    """Return a sentence on a figure too good to be true."""
    if metric != "auc" or (value or 0) < _LEAK:
        return ""
    return f" An AUC above {_LEAK} is rare: look for columns known only after the outcome."


def _ahead(own: LeaderboardRow) -> str:
    if own.from_best is None:
        return "ahead; the difference is not tested"
    return "ahead, within noise" if own.is_same_as_best else "significantly better: valid and test disagree"
