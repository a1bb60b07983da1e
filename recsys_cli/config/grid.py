"""The configs that a bench consists of: each of its models in place of the config's own, and checked like one."""

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
SEARCHES = ("bench", "tune")
"""Sections that say which other configs are tried."""


def cell(values: Mapping[str, Any], model: BenchModel, *, seed: int | None = None) -> dict[str, Any]:
    """Return plain values of a config whose model is that of a bench.

    Args:
        values: Of the config, with nothing in its train section but what was written there.
        model: Stands in place of the model section; its `train` is put over the train section.
        seed: What train.seed is; None for what it would be.
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
    """Return one line for each model, option or metric of the bench that there is not.

    Args:
        document: A config; where an entry has not the form of one, that is said elsewhere.
        check: Gives the problems of a document.
    """
    bench = document.values.get("bench")
    if not isinstance(bench, dict):
        return []
    found = list(_metric_problems(document, bench.get("metrics")))
    models = bench.get("models")
    # What is wrong with the rest of the config is told of by itself.
    known = set(check(_without_searches(document)))
    for position, written in enumerate(models) if isinstance(models, list) else ():
        with suppress(ValidationError):
            found += _problems(document, position, BenchModel.model_validate(written), check, known)
    return found


def _metric_problems(document: Document, metrics: Any) -> Iterator[str]:
    for position, name in enumerate(metrics) if isinstance(metrics, list) else ():
        try:
            check_reported(str(name))
        except ConfigError as error:
            hint = f"; {error.hint}" if error.hint else ""
            yield f"{_marker(document, ('bench', 'metrics', position))}{error.message}{hint}"


def _problems(document: Document, position: int, model: BenchModel, check: Check, known: set[str]) -> list[str]:
    here: Key = ("bench", "models", position)
    marker = _marker(document, here)
    places = {key: place for key, place in document.places.items() if key[0] != "model"}
    places["model",] = marker.removesuffix(": ")
    for key in document.places:
        if key[:3] == here and len(key) > 3:
            inner = key[3:] if key[3] == "train" else ("model", *key[3:])
            places[inner] = _marker(document, key, named=here).removesuffix(": ")
    problems = check(Document(cell(document.values, model), places))
    return [one if "bench.models." in one else f"{marker}{one}" for one in problems if one not in known]


def _without_searches(document: Document) -> Document:
    return Document({name: value for name, value in document.values.items() if name not in SEARCHES}, document.places)


def _marker(document: Document, key: Key, *, named: Key | None = None) -> str:
    """Say where something stands, and which entry of the bench it is of."""
    place = document.place(key)
    return f"{place + ': ' if place else ''}{'.'.join(map(str, named or key))}: "
