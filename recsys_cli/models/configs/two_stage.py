"""Options of the two-stage model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BaseModel,
    Discriminator,
    Field,
    PositiveFloat,
    PositiveInt,
    Tag,
    ValidationError,
    model_validator,
)

from recsys_cli.config.document import Document
from recsys_cli.config.load import model_config, model_config_type, train_defaults
from recsys_cli.config.problems import describe
from recsys_cli.config.section import Named, Section
from recsys_cli.config.train import TrainConfig
from recsys_cli.errors import ConfigError
from recsys_cli.features.split import splits

_WITHOUT_VALID = frozenset({"early_stopping", "monitor"})
"""Train defaults without effect: the training of a part has no valid split."""
_MOST_EPOCHS = 20
"""Upper bound of a default for epochs: defaults of many epochs rely on early stopping."""


class Part(Named):
    """A registered model as a part of the stack: its name, its training, and its own options."""

    name: str
    """Name of a model (`recsys ls models`)."""
    train: dict[str, Any] = Field(default_factory=dict)
    """Options of the `train` section for this part, such as epochs; others are the model's defaults, with at
    most 20 epochs. No early stopping."""

    @property
    def training(self) -> TrainConfig:
        """The `train` section of this part."""
        defaults = train_defaults(model_config_type(self.name))
        kept = {name: value for name, value in defaults.items() if name not in _WITHOUT_VALID}
        epochs = min(kept.get("epochs", 1), _MOST_EPOCHS)
        return TrainConfig.model_validate({**kept, "epochs": epochs, **self.train})

    @model_validator(mode="after")
    def _fits_its_model(self) -> Self:
        try:
            kind = model_config_type(self.name)
            with self._described(kind, self.options):
                options = model_config(self.name, self.options)
            with self._described(TrainConfig, self.train, section="train"):
                _ = self.training
        except ConfigError as error:
            raise ValueError(f"{error.message}; {error.hint}" if error.hint else error.message) from error
        assert self.model_extra is not None
        self.model_extra.update(options.model_dump(mode="json"))  # defaults included, for the key of a run
        return self

    @contextmanager
    def _described(self, kind: type[BaseModel], values: dict[str, Any], *, section: str = "") -> Iterator[None]:
        """Describe validation errors as those of all other sections."""
        document = Document({section: values} if section else values)
        try:
            yield
        except ValidationError as error:
            problems = describe(error, kind, document, prefix=(section,) if section else ())
            raise ValueError(f"{self.name}: {'; '.join(problems)}") from error


class Generator(Part):
    """A retrieval model and the number of its candidates."""

    k: PositiveInt = 100
    """Candidates per user."""


class TreeRanker(Section):
    """LightGBM on the features of candidates."""

    name: Literal["lightgbm"] = "lightgbm"
    objective: Literal["binary", "lambdarank"] = "binary"
    """`binary`: cross-entropy. `lambdarank`: pairs of a user's candidates, weighted by their change of NDCG (Burges, 2010)."""
    num_trees: PositiveInt = 150
    """Number of trees, one per boosting round."""
    learning_rate: PositiveFloat = 0.05
    """Shrinkage of each tree's output."""
    num_leaves: int = Field(7, ge=2)
    """Maximum leaves per tree."""
    min_data_in_leaf: PositiveInt = 50
    """Minimum candidates per leaf."""
    lambda_l2: float = Field(10.0, ge=0)
    """L2 penalty of the leaf values."""
    feature_fraction: float = Field(0.5, gt=0, le=1)
    """Share of features sampled for each tree."""
    bagging_fraction: float = Field(0.8, gt=0, le=1)
    """Share of candidates sampled for each tree."""


def _kind_of_ranker(ranker: Any) -> str:
    name = ranker.get("name", "lightgbm") if isinstance(ranker, Mapping) else getattr(ranker, "name", None)
    return "lightgbm" if name == "lightgbm" else "model"


Ranker = Annotated[
    Annotated[TreeRanker, Tag("lightgbm")] | Annotated[Part, Tag("model")], Discriminator(_kind_of_ranker)
]


class HoldOut(Section):
    """Train rows held out from the generators: the targets of the ranker."""

    method: Literal["auto", "latest", "last", "random"] = "auto"
    """`latest`: the latest rows of train. `last`: the last row of each user. `random`: folds of (user, item) pairs.
    `auto`: the one that resembles the split of the config: `latest` after a split by time, `last` after leave-last-out,
    `random` after a random split; otherwise `latest` for data with timestamps, else `random`."""
    share: float = Field(0.1, gt=0, lt=0.5)
    """Share of the rows in a hold-out of `latest` and `random`."""
    rounds: int | None = Field(None, ge=1, le=100)
    """Number of hold-outs, one after another; the generators are fitted anew for each. More give the ranker more rows. None:
    4, or 1 with a generator trained by gradients."""


class Mmr(Section):
    """Maximal marginal relevance (Carbonell and Goldstein, 1998): relevance minus similarity to the items before."""

    name: Literal["mmr"]
    diversity: float = Field(0.2, ge=0, le=1)
    """Weight of the similarity: 0 keeps the order."""
    by: str | None = None
    """Generator with item vectors or item-item weights as similarities. None: item features."""
    top: PositiveInt = 50
    """Length of the list to re-rank, from `pool` candidates."""
    pool: PositiveInt = 100
    """Best candidates to choose from."""


class AtMost(Section):
    """At most a number of items with one value of an item feature in the top of the list."""

    name: Literal["at-most"]
    feature: str
    """Categorical feature of the items, such as genres."""
    number: PositiveInt
    """Maximum items with one value."""
    top: PositiveInt = 10
    """Length of the list under the rule; items over the limit follow it."""


Reranker = Annotated[Mmr | AtMost, Field(discriminator="name")]


class TwoStageConfig(Section):
    """Two stages: candidates of several retrieval models, then a ranker trained on candidates out of fold, then re-ranking.

    After Covington et al., "Deep Neural Networks for YouTube Recommendations" (2016).
    """

    format: ClassVar[int] = 4
    train_defaults: ClassVar[Mapping[str, Any]] = {"monitor": "ndcg@10"}

    candidates: tuple[Generator, ...] = Field(
        default_factory=lambda: tuple(Generator(name=name) for name in ("ease", "item-knn", "popularity")), min_length=1
    )
    """Generators: retrieval, sequence or closed-form models with their options and `k`, such as {name: ease, k: 100} or
    {name: popularity, half_life: 2592000}."""
    ranker: Ranker | None = TreeRanker()
    """Model of the features of (user, candidate): `lightgbm`, or a ranking model such as dcn-v2 or din. null: reciprocal rank
    fusion of the generators (Cormack et al., 2009)."""
    holdout: HoldOut = HoldOut()
    """Targets of the ranker."""
    negatives: PositiveInt | None = None
    """Candidates per user that are no targets, sampled as negatives of the ranker. None: all."""
    max_categories: PositiveInt = 50
    """Item features with at most this many categories are features of the ranker, one column per category."""
    rerank: tuple[Reranker, ...] = ()
    """Re-rankers of the ranker's list, in order."""

    @property
    def generators(self) -> dict[str, Generator]:
        """The generators by distinct name."""
        named: dict[str, Generator] = {}
        for generator in self.candidates:
            number = sum(name.partition(" ")[0] == generator.name for name in named)
            named[f"{generator.name} {number + 1}" if number else generator.name] = generator
        return named

    def for_split(self, method: str) -> Self:
        """Return the options with a hold-out in place of `auto` that resembles a split."""
        resembling = splits()[method].holdout
        if self.holdout.method != "auto" or resembling is None:
            return self
        return self.model_copy(update={"holdout": self.holdout.model_copy(update={"method": resembling})})

    @property
    def model_parts(self) -> tuple[Part, ...]:
        """The registered models of the stack; their versions belong to the key of its runs."""
        return (*self.candidates, *([self.ranker] if isinstance(self.ranker, Part) else []))

    @model_validator(mode="after")
    def _rerankers_name_generators(self) -> Self:
        known = self.generators
        for reranker in self.rerank:
            if isinstance(reranker, Mmr) and reranker.by is not None and reranker.by not in known:
                raise ValueError(f"rerank: by is {reranker.by}, which is no generator; there are {', '.join(known)}")
        return self
