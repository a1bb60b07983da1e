"""The `bench` section: models and seeds of a leaderboard on the same data."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from recsys_cli.config import yaml12
from recsys_cli.config.section import MAX_SEED, Section, require_distinct
from recsys_cli.errors import ConfigError
from recsys_cli.metrics import IMPRESSION, OPTIONAL
from recsys_cli.metrics.foreign import foreign_path
from recsys_cli.metrics.named import BINARY


class BenchModel(BaseModel):
    """A model of the bench: a replacement of the config's `model` section, with its options next to the name."""

    model_config = ConfigDict(frozen=True, extra="allow", defer_build=True)

    name: str
    """Name of the model, as in `model.name`."""
    label: str | None = Field(None, max_length=60)
    """Label in leaderboards, and in `ours` of a protocol. None: the name, plus options if two entries share it."""
    train: dict[str, Any] = {}
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
        return {"name": self.name, **(self.model_extra or {})}

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
    """Return a message for each metric absent from an evaluation.

    Args:
        metrics: Names of metrics.
        k: Cut-offs of the evaluation.
        extra: Metrics of plugins in the evaluation.
    """
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
