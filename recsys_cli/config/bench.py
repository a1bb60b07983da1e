"""The `bench` section: models and seeds of a leaderboard on the same data, and the config of each model."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Annotated, Any

from pydantic import Field, ValidationError, field_validator, model_validator

from recsys_cli.config import yaml12
from recsys_cli.config.document import Check, Document, Key
from recsys_cli.config.section import MAX_SEED, Named, Section, require_distinct
from recsys_cli.errors import ConfigError
from recsys_cli.metrics import IMPRESSION, OPTIONAL
from recsys_cli.metrics.foreign import foreign_path
from recsys_cli.metrics.named import BINARY, check_reported

SEARCHES = ("bench", "tune", "update", "protocol")
"""Sections of several runs, absent from the config of a single one."""


class BenchModel(Named):
    """A model of the bench: a replacement of the config's `model` section, with its options next to the name."""

    name: str
    """Name of the model, as in `model.name`."""
    label: str | None = Field(None, max_length=60)
    """Label in leaderboards, and in `ours` of a protocol. None: the name, plus options if two entries share it."""
    train: dict[str, Any] = Field(default_factory=dict)
    """Overrides of the train section for this model. Keys absent here and in the config's train section take the model's own
    defaults (`recsys ls models NAME`)."""

    @model_validator(mode="before")
    @classmethod
    def _may_be_a_name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @field_validator("label")
    @classmethod
    def _is_a_name(cls, label: str | None) -> str | None:
        if label is not None and not re.fullmatch(r"[\w.+-]+( [\w.+-]+)*", label):
            raise ValueError("has to be words of letters, digits and . + - _, such as sasrec-tuned")
        return label

    @field_validator("train")
    @classmethod
    def _has_no_seed(cls, train: dict[str, Any]) -> dict[str, Any]:
        if "seed" in train:
            raise ValueError("train.seed is the same for all models: set bench.seeds instead")
        return train

    @property
    def model(self) -> dict[str, Any]:
        """The model section of this entry."""
        return {"name": self.name, **self.options}

    @property
    def differs(self) -> str:
        """Options and train overrides, as `key=value` on one line."""
        return ", ".join(
            f"{key}={yaml12.quoted(value)}" for key, value in {**(self.model_extra or {}), **self.train}.items()
        )


class BenchConfig(Section):
    """Models trained and evaluated by `recsys bench` on the config's data: an ordinary run per model and seed."""

    models: tuple[BenchModel, ...] = Field(min_length=1, max_length=500)
    """Names of models, or entries such as `{name: mf, label: wide mf, embedding_dim: 64, train: {epochs: 20}}`."""
    seeds: tuple[Annotated[int, Field(ge=0, le=MAX_SEED)], ...] = Field((42,), min_length=1)
    """Values of `train.seed`: one run per seed. Deterministic models are trained with the first seed only."""
    metrics: tuple[str, ...] = Field(BINARY.leaderboard, min_length=1)
    """Metrics of the leaderboard (`recsys ls metrics`, or `evaluate.metrics`), sorted by the first one. Default for a numeric
    label: rmse, mae and ndcg@10."""

    _are_distinct = field_validator("seeds", "metrics")(require_distinct)

    @field_validator("models")
    @classmethod
    def _have_different_labels(cls, models: tuple[BenchModel, ...]) -> tuple[BenchModel, ...]:
        require_distinct(_labels(models))
        return models

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels of the models: their own, or the name, plus options if two entries share it."""
        return _labels(self.models)


def not_measured(metrics: Iterable[str], k: Collection[int], extra: Collection[str]) -> list[str]:
    """Return a message for each metric absent from an evaluation with these cut-offs and metrics of plugins."""
    parts = [(one, one.partition("@")[2]) for one in metrics if one.partition("@")[0] not in IMPRESSION]
    missing = [
        f"{metric} is not measured: add {cut_off} to evaluate.k"
        for metric, cut_off in parts
        if cut_off.isdecimal() and int(cut_off) not in {0, *k}  # 0 is reported as an invalid cut-off
    ]
    foreign = [name for metric in metrics if (name := metric.partition("@")[0]) not in extra and _is_foreign(name)]
    return missing + [f"{name} is not measured: add it to evaluate.metrics" for name in foreign]


def _is_foreign(name: str) -> bool:
    try:
        return name in OPTIONAL or foreign_path(name) is not None
    except ConfigError:  # reported as a problem of the metric
        return False


def _labels(models: tuple[BenchModel, ...]) -> tuple[str, ...]:
    names = Counter(model.name for model in models if model.label is None)
    return tuple(
        model.label or (f"{model.name} {model.differs}".strip() if names[model.name] > 1 else model.name)
        for model in models
    )


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
    """Return one line for each unknown model, option or metric of the bench; the section's validation reports malformed entries."""
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
