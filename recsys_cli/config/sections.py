"""The sections of a config, as frozen types: what may be written, what it means, and what it is when left out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from recsys_cli.config.bench import BenchConfig, not_measured
from recsys_cli.config.section import Section
from recsys_cli.config.train import TrainConfig
from recsys_cli.config.tune import TuneConfig
from recsys_cli.features.plan import FeaturePlan
from recsys_cli.features.split import AnySplit, RandomSplit
from recsys_cli.metrics.foreign import SAMPLED
from recsys_cli.metrics.named import MAX_CUT_OFF
from recsys_cli.registry import DEFAULT_MODEL, suggest

_CLUSTERS = ("local", "local_cuda")
_SCHEDULER = re.compile(r"(tcp|tls)://([^\s:/\[\]]+|\[[0-9a-fA-F:.]+\]):[0-9]{1,5}")


class DatasetConfig(BaseModel):
    """Which dataset; the options beside the name are the dataset's own, and are checked by it."""

    model_config = ConfigDict(frozen=True, extra="allow")

    name: str
    """Name in the catalog (`recsys ls datasets`), `files` for tables of your own, or one of another package."""

    @property
    def options(self) -> dict[str, Any]:
        """The dataset's own options."""
        return dict(self.model_extra or {})

    @property
    def called(self) -> str:
        """What reports call it: its name, or for tables of the user's own that of the first file."""
        given = self.options.get("interactions")
        first = given[0] if isinstance(given, list | tuple) and given else given
        return Path(first).stem if self.name == "files" and isinstance(first, str) else self.name


class EtlConfig(Section):
    """How the data is prepared. Engine, device, memory, cluster and workers change nothing of what comes out."""

    engine: str = "auto"
    """`polars`, `nvtabular`, or `auto` for the fastest that this machine can run."""
    device: Literal["cpu", "gpu"] = "cpu"
    """Where the engine computes; `gpu` needs cudf-polars (engine polars) or cuDF (engine nvtabular)."""
    memory_mib: int = Field(1_024, ge=256)
    """Budget in MiB: how much is read, learnt and transformed at a time follows from it."""
    cluster: str | None = None
    """`local` for processes on this machine, `local_cuda` for its GPUs, or a Dask scheduler's address (tcp://HOST:PORT), which
    has to be one that you trust: Dask runs what it is sent. None for threads of this process."""
    workers: int | None = Field(None, ge=1)
    """Processes of `cluster: local`, or GPUs of `local_cuda`; None for one per processor, or all GPUs."""
    layout: Literal["star", "flat"] = "star"
    """`star` keeps joined columns once per id; `flat` writes them into every row, for users who feed another tool."""
    on_bad_rows: Literal["error", "skip"] = "error"
    """Stop at rows that cannot be read, naming them, or leave them out and keep them in a file."""
    shard_rows: int | None = Field(None, ge=1, le=8_000_000)
    """About how many rows a parquet file holds; None chooses by their width. Order depends on it, so it belongs to the result."""
    seed: int = Field(42, ge=0)
    """Decides the order of the training rows."""

    @field_validator("cluster")
    @classmethod
    def _is_a_cluster(cls, cluster: str | None) -> str | None:
        if cluster is not None and cluster not in _CLUSTERS and not _SCHEDULER.fullmatch(cluster):
            raise ValueError(
                f"has to be {', '.join(_CLUSTERS)}, or the address of a Dask scheduler such as tcp://10.0.0.7:8786, "
                f"not {cluster!r}{suggest(cluster, _CLUSTERS)}"
            )
        return cluster


HOW = frozenset({"engine", "device", "memory_mib", "cluster", "workers"})
"""Keys of `etl` that change nothing of what comes out, and so are not part of its key."""


Placement = Literal["device", "host", "sharded"]


class EmbeddingConfig(Section):
    """Where the model's embedding tables are kept; how, not what, and so no part of a run's key."""

    placement: Placement = "device"
    """`device`: with the rest of the model. `host`: in host memory, with the optimizer's state; the rows of a batch move.
    `sharded`: each process keeps a part of them (TorchRec). The last two need train.sparse_embeddings=true."""


class ModelConfig(BaseModel):
    """Which model; the options beside the name are the model's own, and are checked by it."""

    model_config = ConfigDict(frozen=True, extra="allow")

    name: str = DEFAULT_MODEL
    """Name of the model (`recsys ls models`), or one of another package."""
    embedding: EmbeddingConfig = EmbeddingConfig()
    """Where its embedding tables are kept."""

    @property
    def options(self) -> dict[str, Any]:
        """The model's own options."""
        return dict(self.model_extra or {})


class EvaluateConfig(Section):
    """What is measured."""

    split: Literal["auto", "valid", "test"] = "auto"
    """Which rows; `auto` is test where there is one, valid otherwise."""
    k: tuple[Annotated[int, Field(ge=1, le=MAX_CUT_OFF)], ...] = (10, 50)
    """Cut-offs of the ranking metrics."""
    metrics: tuple[str, ...] = ()
    """Metrics of other packages (docs/security.md) beside those of `recsys ls metrics`, which are always measured: names of entry
    points, or import paths such as my_package.metrics:ILD. In results and as `train.monitor` they have the same name."""
    max_ranking_users: int | None = Field(2_000, ge=1)
    """Rank for a seeded sample of so many users (named as a sample in all results); None for all."""
    relevance: Literal["positive", "all"] | float = "positive"
    """Which held-out interactions a ranking should find: those with label 1, or all. Of a label that is a number `positive` is what
    is above its mean in train, and a number such as 4 what is at least so much."""
    candidates: Literal["all", "sampled-uniform", "sampled-popularity"] = "all"
    """What is ranked: all items with a train row and the others of the joined table of items, or those to be found among some that
    are drawn for each user, evenly or by their train rows. Sampled figures compare with none of a full ranking, and are named as
    such in all results."""
    sampled_items: int = Field(100, ge=1)
    """How many are drawn for each user, from those that are neither seen nor to be found."""
    bootstrap: int = Field(1_000, ge=10)
    """Resamples behind each 95 % interval."""
    seed: int = Field(42, ge=0)
    """Decides the sample of users and the resamples."""
    title: str | None = None
    """Column of a raw table with what an item is called, for people who read the report: of one beside the interactions, or else
    of the interactions. None for one beside them that is called title or name."""
    batch_size: int = Field(16_384, ge=1)
    """Rows scored at a time; changes no figure. Larger ones spend more time on getting memory than on computing in it."""

    @field_validator("k")
    @classmethod
    def _has_a_cut_off(cls, k: tuple[int, ...]) -> tuple[int, ...]:
        if not k:
            raise ValueError("k needs at least one cut-off")
        return k

    @property
    def label(self) -> str:
        """What the names of ranking metrics begin with."""
        return "" if self.candidates == "all" else SAMPLED


class RunConfig(Section):
    """The whole experiment."""

    dataset: DatasetConfig
    """Where the raw interactions come from."""
    split: AnySplit = RandomSplit()
    """Which rows train, validate and test."""
    features: FeaturePlan
    """What is computed from them."""
    etl: EtlConfig = EtlConfig()
    """How it is computed."""
    model: ModelConfig = ModelConfig()
    """What is trained."""
    train: TrainConfig = TrainConfig()
    """How it is trained."""
    evaluate: EvaluateConfig = EvaluateConfig()
    """How it is measured."""
    tune: TuneConfig | None = None
    """Which other values of `model` and `train` are tried by `recsys tune`; part of no key."""
    bench: BenchConfig | None = None
    """Which other models `recsys bench` trains on the same data, to rank them in one table; part of no key."""

    @model_validator(mode="after")
    def _sections_agree(self) -> RunConfig:
        problems = [f"features: {problem}" for problem in self.features.wrong_roles()]
        problems += self._placement_problems()
        problems += self._label_problems()
        if self.bench is not None:
            problems += [
                f"bench.metrics: {problem}"
                for problem in not_measured(self.bench.metrics, self.evaluate.k, self.evaluate.metrics)
            ]
        if "timestamp" in self.split.reads and self.features.timestamp is None:
            problems.append(
                f"split.method={self.split.method} orders by time, so features.timestamp has to name the column"
            )
        if problems:
            raise ValueError("\n  ".join(problems))
        return self

    def _label_problems(self) -> list[str]:
        """Say what of training is of labels of 0 and 1 alone."""
        tasks, train, label = self.features.tasks, self.train, self.features.labels[0]
        problems = []
        if train.positive_weight is not None and tasks[label] == "regression":
            problems.append(f"train.positive_weight is of labels of 0 and 1, and the label {label} is a number")
        if train.label_smoothing and "binary" not in tasks.values():
            problems.append("train.label_smoothing is of labels of 0 and 1, and there is none")
        return problems

    def _placement_problems(self) -> list[str]:
        placement, train = self.model.embedding.placement, self.train
        if placement == "device":
            return []
        where = f"model.embedding.placement={placement}"
        if not train.sparse_embeddings:
            return [f"{where} moves the rows of a batch only, and needs train.sparse_embeddings=true"]
        if placement == "host":
            return []
        # Sharded tables are updated while the gradient is being computed: nothing can come between.
        wrong = {
            "max_grad_norm": train.max_grad_norm is not None,
            "gradient_accumulation_steps": train.gradient_accumulation_steps > 1,
            "precision": train.precision == "fp16",
            "compile": train.compile,
        }
        return [
            f"{where} updates tables within the backward pass, which does not go with train.{option}={getattr(train, option)}"
            for option, is_wrong in wrong.items()
            if is_wrong
        ]
