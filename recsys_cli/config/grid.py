"""The configs of a bench: one per model, validated like an ordinary config."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from pydantic import ValidationError

from recsys_cli.config.bench import BenchModel
from recsys_cli.config.document import Document, Key
from recsys_cli.errors import ConfigError
from recsys_cli.metrics.named import check_reported

Check = Callable[[Document], list[str]]
SEARCHES = ("bench", "tune", "protocol")
"""Sections of several runs, absent from the config of a single one."""


def cell(values: Mapping[str, Any], model: BenchModel, *, seed: int | None = None) -> dict[str, Any]:
    """Return the plain values of the config of one bench model.

    Args:
        values: Values of the config; the train section without defaults.
        model: Replaces the model section; its `train` overrides the train section.
        seed: Value of train.seed; None for the config's seed.
    """
    written = values.get("train")
    train = {
        **(written if isinstance(written, dict) else {}),
        **model.train,
        **({} if seed is None else {"seed": seed}),
    }
    others = {name: section for name, section in values.items() if name not in SEARCHES}
    return {**others, "model": model.model, "train": train}


def bench_problems(document: Document, check: Check) -> list[str]:
    """Return one line for each unknown model, option or metric of the bench.

    Args:
        document: A config. Malformed entries are skipped: the validation of the section reports them.
        check: Returns the problems of a document.
    """
    bench = document.values.get("bench")
    if not isinstance(bench, dict):
        return []
    problems = list(_metric_problems(document, bench.get("metrics")))
    models = bench.get("models")
    # Problems of the rest of the config are reported once, not per model.
    unrelated = set(check(_without_searches(document)))
    for position, entry in enumerate(models) if isinstance(models, list) else ():
        with suppress(ValidationError):
            problems += _problems(document, position, BenchModel.model_validate(entry), check, unrelated)
    return problems


def _metric_problems(document: Document, metrics: Any) -> Iterator[str]:
    for position, name in enumerate(metrics) if isinstance(metrics, list) else ():
        try:
            check_reported(str(name))
        except ConfigError as error:
            hint = f"; {error.hint}" if error.hint else ""
            yield f"{_marker(document, ('bench', 'metrics', position))}{error.message}{hint}"


def _problems(document: Document, position: int, model: BenchModel, check: Check, unrelated: set[str]) -> list[str]:
    here: Key = ("bench", "models", position)
    marker = _marker(document, here)
    locations = {key: location for key, location in document.locations.items() if key[0] != "model"}
    locations["model",] = marker.removesuffix(": ")
    for key in document.locations:
        if key[:3] == here and len(key) > 3:
            inner = key[3:] if key[3] == "train" else ("model", *key[3:])
            locations[inner] = _marker(document, key, named=here).removesuffix(": ")
    problems = check(Document(cell(document.values, model), locations))
    return [one if "bench.models." in one else f"{marker}{one}" for one in problems if one not in unrelated]


def _without_searches(document: Document) -> Document:
    values = {name: value for name, value in document.values.items() if name not in SEARCHES}
    return Document(values, document.locations)


def _marker(document: Document, key: Key, *, named: Key | None = None) -> str:
    """Return the prefix of a problem: source location and key of the bench entry."""
    location = document.location(key)
    return f"{location + ': ' if location else ''}{'.'.join(map(str, named or key))}: "
