"""The sections of a config as frozen types: keys, meanings and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from recsys_cli.config.bench import BenchConfig, not_measured
from recsys_cli.config.protocol import ProtocolConfig
from recsys_cli.config.section import MAX_COUNT, MAX_SEED, Named, Section
from recsys_cli.config.train import TrainConfig
from recsys_cli.config.tune import TuneConfig
from recsys_cli.config.update import UpdateConfig
from recsys_cli.executors.address import NAMES, not_a_cluster
from recsys_cli.features.split import AnySplit, RandomSplit, splits
from recsys_cli.metrics.foreign import SAMPLED
from recsys_cli.metrics.named import MAX_CUT_OFF
from recsys_cli.ops.plan import FeaturePlan
from recsys_cli.registry import DEFAULT_MODEL, suggest


class DatasetConfig(Named):
    """The dataset: its name, plus options defined and validated by the dataset itself."""

    name: str
    """Name of a dataset (`recsys ls datasets`), `files` for your own tables, or a plugin's dataset."""

    @property
    def called(self) -> str:
        """Name in reports: the dataset's name, or the stem of the first file for `files`."""
        given = self.options.get("interactions")
        first = given[0] if isinstance(given, list | tuple) and given else given
        return Path(first).stem if self.name == "files" and isinstance(first, str) else self.name


class EtlConfig(Section):
    """Execution of the data preparation. Engine, device, memory, cluster and workers do not change the result."""

    engine: str = "auto"
    """`polars`, `nvtabular`, or `auto`: the fastest engine available on this machine."""
    device: Literal["cpu", "gpu"] = "cpu"
    """Device of the engine. `gpu` needs cudf-polars (engine polars) or cuDF (engine nvtabular)."""
    memory_mib: int = Field(1_024, ge=256, le=MAX_COUNT)
    """Memory budget in MiB; sets the size of the chunks that are read, fitted and transformed at a time."""
    cluster: str | None = None
    """Cluster, trusted because it executes arbitrary code. Dask: `local` (processes of this machine), `local_cuda` (its
    GPUs) or tcp://HOST:PORT. Ray: `ray` (RAY_ADDRESS, the one of this machine, or a new one) or ray://HOST:PORT. `auto`: the
    one of RAY_ADDRESS or DASK_SCHEDULER_ADDRESS for large data. None: threads of this process."""
    workers: int | None = Field(None, ge=1, le=MAX_COUNT)
    """Processes of `cluster: local` or a new `ray`, or GPUs of `local_cuda`. None: one process per core, or all GPUs."""
    layout: Literal["star", "flat"] = "star"
    """`star` stores joined columns once per id, in dimension tables. `flat` repeats them in every row, for export."""
    on_bad_rows: Literal["error", "skip"] = "error"
    """Malformed rows: `error` stops and lists them; `skip` drops them and saves them to a file."""
    shard_rows: int | None = Field(None, ge=1, le=8_000_000)
    """Approximate rows per parquet shard. None: chosen by row width. Part of the key, because it changes the row order."""
    seed: int = Field(42, ge=0, le=MAX_SEED)
    """Random seed of the shuffle of the training rows."""

    @field_validator("cluster")
    @classmethod
    def _is_a_cluster(cls, cluster: str | None) -> str | None:
        if cluster is not None and (reason := not_a_cluster(cluster)) is not None:
            raise ValueError(f"{reason}{suggest(cluster, NAMES)}")
        return cluster


EXECUTION_KEYS = frozenset({"engine", "device", "memory_mib", "cluster", "workers"})
"""Keys of `etl` without influence on the result; excluded from the artifact key."""


Placement = Literal["device", "host", "sharded"]


class EmbeddingConfig(Section):
    """Placement of the embedding tables. It does not change the result and is not part of the run's key."""

    placement: Placement = "device"
    """`device`: with the other parameters. `host`: tables and optimizer state in host memory; only the rows of a batch move.
    `sharded`: split over the processes (TorchRec). `host` and `sharded` need train.sparse_embeddings=true."""


class ModelConfig(Named):
    """The model: its name, plus options defined and validated by the model itself."""

    name: str = DEFAULT_MODEL
    """Name of a model (`recsys ls models`), a plugin's model, or `auto`: the best of ease, item-knn, popularity (also with a
    half-life) and, with times, sasrec by NDCG@10 on valid."""
    embedding: EmbeddingConfig = EmbeddingConfig()
    """Placement of the embedding tables."""


class AutoConfig(Section):
    """The best of quick candidates by NDCG@10 on valid, or without valid on rows held out of train.

    The candidates: popularity, also with half-lives of 1/8 and 1/64 of train; item-knn; ease, on the most popular items of a large
    catalog; and with timestamps, up to a million train rows, sasrec of few epochs.
    Each is an ordinary run. Their bounds depend on the data alone, not on the time they take.
    """

    train_defaults: ClassVar[Mapping[str, Any]] = {"monitor": "ndcg@10"}


class EvaluateConfig(Section):
    """The evaluation: data, metrics and candidates."""

    split: Literal["auto", "valid", "test"] = "auto"
    """Split to evaluate. `auto`: test if the data has one, otherwise valid."""
    k: tuple[Annotated[int, Field(ge=1, le=MAX_CUT_OFF)], ...] = (10, 50)
    """Cut-offs of the ranking metrics."""
    metrics: tuple[str, ...] = ()
    """Additional metrics: `capped_recall`, or those of plugins (docs/security.md), as entry points or import paths such as
    my_package.metrics:ILD. The same name appears in results and is valid for `train.monitor`. The other metrics of
    `recsys ls metrics` are always computed."""
    max_ranking_users: int | None = Field(2_000, ge=1, le=MAX_COUNT)
    """Users in the ranking metrics, as a seeded sample; results are marked as sampled. None: all users."""
    relevance: Literal["positive", "all"] | float = "positive"
    """Relevant held-out interactions: `positive` (label 1, or a numeric label above its mean in train), `all`, or a threshold
    such as 4 for a numeric label (relevant: label >= 4)."""
    candidates: Literal["all", "sampled-uniform", "sampled-popularity", "given"] = "all"
    """Candidates of a ranking. `all`: all items of train and of the item table. `sampled-uniform`, `sampled-popularity`: the
    relevant items plus `sampled_items` negatives per user, uniform or by train frequency. `given`: the user's items in the split,
    such as an item (label 1) and its negatives (label 0). All but `all` are marked: not comparable with full rankings."""
    repeats: bool = False
    """Rank the items of the user's history as well, and count relevant interactions that repeat one: for repeat purchases, plays or
    visits. `recommend` and `serve` then recommend them too."""
    sampled_items: int = Field(100, ge=1, le=MAX_COUNT)
    """Sampled negatives per user, from items that are neither seen nor relevant."""
    targets: Literal["all", "last", "first", "random"] = "all"
    """Ground truth of each user in the evaluated split: `all` relevant interactions, or one of them by time, ranked after the
    user's history up to that moment, with the earlier interactions of the split."""
    fold_in_targets: Annotated[int, Field(ge=1, le=MAX_COUNT)] | Literal["each", "latest"] | None = None
    """Ground truth of each user after a split by user or session: the last rows, ranked by fold-in of the user's earlier ones;
    1 for the prediction of a session's last item. `each`: every row but the first, each ranked by fold-in of the rows before it, as
    in papers on sessions. `latest`: all rows of the user's latest time, such as a basket. None: the last fifth."""
    bootstrap: int = Field(1_000, ge=10, le=MAX_COUNT)
    """Bootstrap resamples for each 95 % interval."""
    seed: int = Field(42, ge=0, le=MAX_SEED)
    """Random seed of the user sample and the bootstrap."""
    title: str | None = None
    """Column with item titles for the report, in a joined table or the interactions. None: `title` or `name` of a joined table."""
    batch_size: int = Field(16_384, ge=1, le=MAX_COUNT)
    """Rows per scoring batch; does not change the metrics. Larger batches are slower: memory allocation dominates."""

    @field_validator("k")
    @classmethod
    def _has_a_cut_off(cls, k: tuple[int, ...]) -> tuple[int, ...]:
        if not k:
            raise ValueError("k needs at least one cut-off")
        return k

    @property
    def label(self) -> str:
        """Prefix of the names of ranking metrics: empty for full rankings."""
        return "" if self.candidates == "all" else SAMPLED

    @property
    def ranks_seen(self) -> bool:
        """Whether items of the user's history are ranked and relevant."""
        return self.repeats or self.candidates == "given"


class RecommendConfig(Section):
    """Lists of recommendations."""

    cold_slots: int = Field(0, ge=0, le=MAX_CUT_OFF)
    """Least number of items absent from train in each list, in its last places, for models with `cold_items` or item features."""


class RunConfig(Section):
    """A complete experiment: data, model, training and evaluation."""

    dataset: DatasetConfig
    """Source of the raw interactions."""
    split: AnySplit = RandomSplit()
    """Split into train, valid and test."""
    features: FeaturePlan
    """Roles of the columns and the ops of the feature engineering."""
    etl: EtlConfig = EtlConfig()
    """Execution of the data preparation."""
    model: ModelConfig = ModelConfig()
    """The model and its options."""
    train: TrainConfig = TrainConfig()
    """Training: optimizer, schedule, precision, checkpoints and devices."""
    evaluate: EvaluateConfig = EvaluateConfig()
    """Evaluation: metrics, candidates and intervals."""
    recommend: RecommendConfig = RecommendConfig()
    """Lists of `recommend` and `serve`."""
    tune: TuneConfig | None = None
    """Hyperparameter search of `recsys tune` over keys of `model` and `train`; not part of any key."""
    bench: BenchConfig | None = None
    """Models compared by `recsys bench` on the same data; not part of any key."""
    update: UpdateConfig | None = None
    """The daily `recsys update`; not part of any key."""
    protocol: ProtocolConfig | None = None
    """Published figures, shown by `recsys bench` next to ours (`recsys ls protocols`); not part of any key."""

    @model_validator(mode="after")
    def _sections_agree(self) -> RunConfig:
        problems = [f"features: {problem}" for problem in self.features.wrong_roles()]
        problems += self._placement_problems()
        problems += self._label_problems()
        if self.features.impression is not None:
            problems += self._impression_problems()
        if self.bench is not None:
            problems += [
                f"bench.metrics: {problem}"
                for problem in not_measured(self.bench.metrics, self.evaluate.k, self.evaluate.metrics)
            ]
        if self.evaluate.candidates == "given" and self.evaluate.targets != "all":
            problems.append(
                "evaluate.targets chooses by time, but evaluate.candidates=given has the targets: use targets=all"
            )
        if "timestamp" in self.split.reads and self.features.timestamp is None:
            problems.append(
                f"split.method={self.split.method} orders by time: set features.timestamp to the time column"
            )
        elif self.split.tie_seed is not None and self.features.timestamp is None:
            problems.append("split.tie_seed shuffles rows with equal times: set features.timestamp to the time column")
        if problems:
            raise ValueError("\n  ".join(problems))
        return self

    @property
    def leakage(self) -> str | None:
        """Warning about interactions of train later than some of valid and test; None without times or without such rows."""
        interactions = self.dataset.options.get("interactions")
        order = interactions.get("order") if isinstance(interactions, dict) else None
        if self.features.timestamp in {None, order}:
            return None
        return self.split.leakage

    def _label_problems(self) -> list[str]:
        """Problems of train options for binary labels."""
        tasks, train, label = self.features.tasks, self.train, self.features.labels[0]
        problems = []
        if train.positive_weight is not None and tasks[label] == "regression":
            problems.append(f"train.positive_weight needs a binary label (0 or 1), but {label} is numeric")
        if train.label_smoothing and "binary" not in tasks.values():
            problems.append("train.label_smoothing needs a binary label (0 or 1), but all labels are numeric")
        return problems

    def _impression_problems(self) -> list[str]:
        """Problems of impressions: a split that divides them, or a label without clicks."""
        problems = []
        if not self.split.keeps_impressions:
            others = ", ".join(name for name, kind in splits().items() if kind.keeps_impressions)
            text = f"split.method={self.split.method} divides the impressions of features.impression: choose one of"
            problems.append(f"{text} {others}")
        if self.features.tasks[self.features.labels[0]] == "regression":
            problems.append("features.impression needs a binary main label (1 for a click)")
        return problems

    def _placement_problems(self) -> list[str]:
        placement, train = self.model.embedding.placement, self.train
        if placement == "device":
            return []
        where = f"model.embedding.placement={placement}"
        if not train.sparse_embeddings:
            return [f"{where} updates only the rows of a batch: set train.sparse_embeddings=true"]
        if placement == "host":
            return []
        # TorchRec updates sharded tables inside the backward pass, so no step can run between gradient and update.
        wrong = {
            "max_grad_norm": train.max_grad_norm is not None,
            "gradient_accumulation_steps": train.gradient_accumulation_steps > 1,
            "precision": train.precision == "fp16",
            "compile": train.compile,
        }
        return [
            f"{where} updates tables within the backward pass and does not support train.{option}={getattr(train, option)}"
            for option, is_wrong in wrong.items()
            if is_wrong
        ]
