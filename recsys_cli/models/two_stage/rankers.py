"""Rankers of candidates: LightGBM, or any ranking model of rows."""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from recsys_cli.batch import Batch
from recsys_cli.config.load import model_config
from recsys_cli.errors import ConfigError
from recsys_cli.features.columns import HISTORY_USER, PREFIX
from recsys_cli.features.hashing import hash_counters, mix
from recsys_cli.features.schema import Column, Kind, Role, Schema
from recsys_cli.interactions import Interactions
from recsys_cli.models import build, kind_of
from recsys_cli.models.configs.ranking import HistoryFeature
from recsys_cli.models.configs.two_stage import HoldOut, Part, TreeRanker
from recsys_cli.models.model import Model, TrainingContext
from recsys_cli.models.ranking.history import event_columns
from recsys_cli.models.two_stage.candidates import Join

_FOLDS = 0x2574
"""Seed offset of random folds."""
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Fold:
    """Rows for the generators and the features, and disjoint rows with the targets of the ranker."""

    fit: Interactions
    targets: Interactions


def folds_of(rows: Interactions, options: HoldOut, *, rounds: int, seed: int) -> Iterator[Fold]:
    """Yield the hold-outs of train rows; none with targets but without rows to fit.

    Raises:
        ConfigError: The method needs timestamps, and the rows have none.
    """
    method = options.method
    if method == "auto":
        method = "random" if rows.times is None else "latest"
    if method != "random" and rows.times is None:
        raise ConfigError(
            f"model.holdout.method is {method}, which needs timestamps, and the prepared data has none",
            hint="set features.timestamp and run `recsys etl`, or set model.holdout.method=random",
        )
    for number in range(rounds):
        if method == "random":
            fit, targets = _random(rows, number, share=options.share, seed=seed)
        elif method == "last":
            fit, targets = _last(rows, number)
        else:
            fit, targets = _latest(rows, number, share=options.share)
        if fit.any() and targets.any():
            yield Fold(rows.chosen(fit), rows.chosen(targets))


def _latest(rows: Interactions, number: int, *, share: float) -> tuple[Mask, Mask]:
    """Return the masks of all rows before a window of time and of the window; the last window has number 0."""
    assert rows.times is not None
    times = np.sort(rows.times)
    ends = [len(rows) - round(len(rows) * share * count) for count in (number, number + 1)]
    last, first = (times[max(0, end)] if end < len(rows) else np.inf for end in ends)
    return rows.times < first, (rows.times >= first) & (rows.times < last)


def _last(rows: Interactions, number: int) -> tuple[Mask, Mask]:
    """Return the masks of each user's rows before one, and of that row; the last one has number 0."""
    order = rows.chronological()
    users = rows.user_idx[order]
    ends = np.searchsorted(users, users, side="right")
    from_end = np.empty(len(rows), np.int64)
    from_end[order] = ends - 1 - np.arange(len(rows))
    enough = np.bincount(rows.user_idx)[rows.user_idx] > number + 1
    return (from_end > number) | ~enough, (from_end == number) & enough


def _random(rows: Interactions, number: int, *, share: float, seed: int) -> tuple[Mask, Mask]:
    """Return the masks of other folds and of one fold of (user, item) pairs."""
    pairs = hash_counters(
        rows.item_idx.astype(np.uint64), hash_counters(rows.user_idx.astype(np.uint64), mix(seed, _FOLDS))
    )
    num_folds = max(2, round(1 / share))
    targets = pairs % np.uint64(num_folds) == np.uint64(number % num_folds)
    return ~targets, targets


@dataclass(frozen=True)
class LabeledCandidates:
    """N candidates with features and labels, in lists: a list has the candidates of one user in one hold-out.

    Attributes:
        items: Encoded items, shape (N,).
        features: Shape (N, F), float32.
        labels: 1 for a target, float32; shape (N,).
        group: Number of the list of each row, ascending; shape (N,).
        histories: The user's rows outside the hold-out, with the number of the list as user.
    """

    items: Tensor
    features: Tensor
    labels: Tensor
    group: Tensor
    histories: Interactions

    @classmethod
    def concatenated(cls, parts: Sequence[LabeledCandidates]) -> LabeledCandidates:
        """Return the rows of several hold-outs, at least one."""
        items, features, labels, group = (
            torch.cat(tensors)
            for tensors in zip(*((one.items, one.features, one.labels, one.group) for one in parts), strict=True)
        )
        return cls(items, features, labels, group, reduce(operator.add, (one.histories for one in parts)))


def histories_of(rows: Interactions, users: Tensor, *, first: int) -> Interactions:
    """Return the rows of some users, ascending and of shape (U,), who get the numbers first, …, first + U - 1."""
    ids = users.cpu().numpy()
    own = rows.chosen(np.isin(rows.user_idx, ids))
    return replace(own, user_idx=(np.searchsorted(ids, own.user_idx) + first).astype(np.int32))


_BATCH = 65_536
"""Rows scored at once; affects only memory."""


class Ranker(nn.Module):
    """A model of candidates' features."""

    @abstractmethod
    def fit(self, rows: LabeledCandidates, context: TrainingContext) -> None:
        """Fit to rows, on their device."""

    @abstractmethod
    def score(self, users: Tensor, items: Tensor, features: Tensor) -> Tensor:
        """Return a score per candidate, (N,), (N,) and (N, F) to (N,), float32; after `set_context`."""

    def set_context(self, context: TrainingContext) -> None:
        """Set the user histories of the scores."""


class Trees(Ranker):
    """Gradient-boosted trees by LightGBM, in its text format in a byte buffer.

    Without trees, because there were no targets, the score is the first feature, the rank fusion.
    """

    trees: Tensor

    def __init__(self, options: TreeRanker, seed: int) -> None:
        super().__init__()
        from recsys_cli.models.ranking.lightgbm import lightgbm

        self._library = lightgbm
        self._options, self._seed = options, seed
        self._booster: Any = None
        self.register_buffer("trees", torch.zeros(0, dtype=torch.uint8))

    def fit(self, rows: LabeledCandidates, context: TrainingContext) -> None:
        """Grow the trees on the CPU."""
        del context
        groups = torch.unique_consecutive(rows.group, return_counts=True)[1]
        listwise = self._options.objective == "lambdarank"
        data = self._library.Dataset(
            rows.features.cpu().numpy(), rows.labels.cpu().numpy(), group=groups.cpu().numpy() if listwise else None
        )
        self._booster = self._library.train(self._lightgbm_parameters(), data, num_boost_round=self._options.num_trees)
        text = np.frombuffer(self._booster.model_to_string().encode(), np.uint8).copy()
        self.trees = torch.from_numpy(text).to(rows.features.device)

    def score(self, users: Tensor, items: Tensor, features: Tensor) -> Tensor:
        """Return the sums of the trees."""
        del users, items
        if not len(self.trees) or not len(features):
            return features[:, 0].clone()
        if self._booster is None:
            self._booster = self._library.Booster(model_str=self.trees.cpu().numpy().tobytes().decode())
        scores = self._booster.predict(features.cpu().numpy(), raw_score=True, num_threads=torch.get_num_threads())
        return torch.from_numpy(scores).float().to(features.device)

    def _lightgbm_parameters(self) -> dict[str, Any]:
        options = self._options.model_dump(exclude={"name", "num_trees"})
        return {
            **options, "bagging_freq": 1, "seed": self._seed, "deterministic": True, "force_row_wise": True,
            "lambdarank_truncation_level": 20, "num_threads": torch.get_num_threads(), "verbosity": -1,
        }  # fmt: skip

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Resize the buffer to the trees of the checkpoint."""
        self._booster = None
        if (trees := state_dict.get(f"{prefix}trees")) is not None:
            self.trees = self.trees.new_empty(len(trees))
        super()._load_from_state_dict(state_dict, prefix, *rest)


class RowRanker(Ranker):
    """A registered ranking model, such as dcn-v2 or din, on the rows of candidates.

    A row has the item with its categorical columns, the standardized features of the candidate and, for a model that
    reads histories, that of the user: outside the hold-out in training, of the context in scoring.

    Raises:
        ConfigError: The model is no gradient-trained ranking model, or an option needs rows of interactions.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, part: Part, schema: Schema, num_features: int) -> None:
        super().__init__()
        self._training = part.training
        _check(part)
        self._names = [f"{PREFIX}feature {number}" for number in range(num_features)]
        numbers = (Column(name=name, role=Role.FEATURE, kind=Kind.NUMERIC, dtype="float32") for name in self._names)
        item, *of_item = event_columns(schema)
        times = schema.select(lambda column: column.role is Role.TIMESTAMP and column.table is None)
        target = schema.label.model_copy(update={"task": "binary"})
        own_item = item.model_copy(update={"table": None})
        self._schema = Schema(columns=(own_item, *of_item, *numbers, target, *times))
        self._item, self._of_item, self._label = item.name, [column.name for column in of_item], target.name
        self.model: Model = build(part.name, part.options, self._schema, sparse=self._training.sparse_embeddings)
        self._join: Join | None = None
        self.register_buffer("mean", torch.zeros(num_features))
        self.register_buffer("deviation", torch.ones(num_features))

    def fit(self, rows: LabeledCandidates, context: TrainingContext) -> None:
        """Train on shuffled rows."""
        self.mean.copy_(rows.features.mean(0))
        self.deviation.copy_(rows.features.std(0, correction=0))
        self._join = context.join
        self.model.set_earlier_rows(rows.histories)
        features = self._batch(rows.group, rows.items, rows.features).features
        batch = Batch(features, {self._label: rows.labels})
        context.train(self.model, self._training, TrainingContext(_none, context.join, lambda: (batch,)), self._schema)

    def set_context(self, context: TrainingContext) -> None:
        """Set the user histories and the item table."""
        self._join = context.join
        self.model.set_context(TrainingContext(_none, context.join))
        self.model.set_earlier_rows(context.interactions())

    def score(self, users: Tensor, items: Tensor, features: Tensor) -> Tensor:
        """Return the logits."""
        self.model.eval()
        parts = zip(users.split(_BATCH), items.split(_BATCH), features.split(_BATCH), strict=True)
        return torch.cat([features[:0, 0], *(self.model.score(self._batch(*part)) for part in parts)])

    def _batch(self, users: Tensor, items: Tensor, features: Tensor) -> Batch:
        assert self._join is not None, "call set_context first"
        scaled = ((features - self.mean) / self.deviation.clamp(min=1e-6)).clamp(-10, 10)
        columns: Iterator[tuple[str, Tensor]] = zip(self._names, scaled.unbind(1), strict=True)
        joined = self._join({self._item: items.to(torch.int32)})
        of_item = {name: joined[name] for name in (self._item, *self._of_item)}
        return Batch({**of_item, HISTORY_USER: users, **dict(columns)}, {})


def _check(part: Part) -> None:
    """Check a model as a ranker of candidates.

    Raises:
        ConfigError: It cannot be one.
    """
    kind, options = kind_of(part.name), model_config(part.name, part.options)
    if kind.rows != "interactions" or kind.scoring != "pairs":
        raise ConfigError(
            f"model.ranker.name is {part.name}, which is no ranking model trained step by step",
            hint="choose lightgbm, or one of dcn-v2, deepfm, fm, mlp, din, bst",
        )
    history: HistoryFeature | None = getattr(options, "history", None)
    if history is not None and history.column is not None:
        raise ConfigError(
            f"model.ranker.history.column is {history.column}, a column of interactions, and a candidate has no interaction",
            hint="remove it: the history of a candidate is that of its user",
        )
    if getattr(options, "collaborative", None) is not None:
        raise ConfigError(
            "model.ranker.collaborative needs rows of interactions, and a candidate has none",
            hint="remove it: scores of the generators are features of a candidate",
        )


def _none() -> Any:
    raise AssertionError("a ranker of candidates reads no interactions")


def ranker_of(options: TreeRanker | Part | None, schema: Schema, num_features: int) -> Ranker | None:
    """Return the ranker of a config; None for rank fusion."""
    if options is None:
        return None
    if isinstance(options, TreeRanker):
        return Trees(options, seed=int(torch.randint(2**31 - 1, ())))
    return RowRanker(options, schema, num_features)
