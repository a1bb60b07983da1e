"""The `bench` section: which models are trained on the same data, with which seeds, to be ranked in one table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from recsys_cli.config import yaml12
from recsys_cli.config.section import Section
from recsys_cli.errors import ConfigError
from recsys_cli.metrics.foreign import foreign_path
from recsys_cli.metrics.label_task import BINARY


class BenchModel(BaseModel):
    """A model of the bench: it stands in place of the config's `model` section, so its options are written beside the name."""

    model_config = ConfigDict(frozen=True, extra="allow")

    name: str
    """Name of the model, as `model.name`."""
    train: dict[str, Any] = {}
    """Keys of the train section that are another for this model. Where neither this nor the config's train section says anything,
    it is trained as its own defaults say (`recsys ls models NAME`)."""

    @model_validator(mode="before")
    @classmethod
    def _may_be_a_name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @field_validator("train")
    @classmethod
    def _has_no_seed(cls, train: dict[str, Any]) -> dict[str, Any]:
        if "seed" in train:
            raise ValueError("train.seed is what bench.seeds says, and the same for all models")
        return train

    @property
    def model(self) -> dict[str, Any]:
        """Its model section."""
        return {"name": self.name, **(self.model_extra or {})}

    @property
    def differs(self) -> str:
        """What it says beside its name, on one line."""
        return ", ".join(
            f"{key}={yaml12.quoted(value)}" for key, value in {**(self.model_extra or {}), **self.train}.items()
        )


class BenchConfig(Section):
    """Which models `recsys bench` trains and measures on the data of the config: each with each seed, as an ordinary run."""

    models: tuple[BenchModel, ...] = Field(min_length=1, max_length=500)
    """Names of models, or entries such as `{name: mf, embedding_dim: 64, train: {epochs: 20}}`."""
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = Field((42,), min_length=1)
    """What `train.seed` is: each model is trained once with each; one that has no chance in it with the first alone."""
    metrics: tuple[str, ...] = Field(BINARY.leaderboard, min_length=1)
    """Figures of the leaderboard (`recsys ls metrics`, or `evaluate.metrics`); models are sorted by the first one. Of a label
    that is a number they are rmse, mae and ndcg@10 where left out."""

    @field_validator("seeds", "metrics")
    @classmethod
    def _are_different(cls, values: tuple[Any, ...]) -> tuple[Any, ...]:
        twice = [str(value) for value, times in Counter(values).items() if times > 1]
        if twice:
            raise ValueError(f"has {', '.join(twice)} twice")
        return values

    @field_validator("models")
    @classmethod
    def _have_different_labels(cls, models: tuple[BenchModel, ...]) -> tuple[BenchModel, ...]:
        twice = [label for label, times in Counter(_labels(models)).items() if times > 1]
        if twice:
            raise ValueError(f"has {', '.join(twice)} twice")
        return models

    @property
    def labels(self) -> tuple[str, ...]:
        """What the models are called: by name, with their options where two have the same."""
        return _labels(self.models)


def not_measured(metrics: Iterable[str], k: Collection[int], extra: Collection[str]) -> list[str]:
    """Return a sentence for each figure that an evaluation does not have.

    Args:
        metrics: Their names.
        k: The cut-offs of the evaluation.
        extra: Its metrics of other packages.
    """
    parts = [(metric, metric.partition("@")[2]) for metric in metrics]
    missing = [
        f"{metric} is not measured, because evaluate.k has no {cut_off}"
        for metric, cut_off in parts
        if cut_off.isdecimal() and int(cut_off) not in {0, *k}  # 0 is wrong in itself
    ]
    foreign = [name for metric in metrics if (name := metric.partition("@")[0]) not in extra and _is_foreign(name)]
    return missing + [f"{name} is not measured, because evaluate.metrics has no {name}" for name in foreign]


def _is_foreign(name: str) -> bool:
    try:
        return foreign_path(name) is not None
    except ConfigError:  # a problem of its own
        return False


def _labels(models: tuple[BenchModel, ...]) -> tuple[str, ...]:
    names = Counter(model.name for model in models)
    return tuple(f"{model.name} {model.differs}".strip() if names[model.name] > 1 else model.name for model in models)
