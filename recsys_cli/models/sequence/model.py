"""Base of sequence models: user histories, tied item embeddings, sampled softmax."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

from recsys_cli.batch import Batch, Feature, Ragged
from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import FIRST, PADDING, TICKS, Column, Kind, Role, Schema
from recsys_cli.models.configs.sequence import LONGEST, QUANTILE, SHORTEST, SequenceOptions, TimeFeature
from recsys_cli.models.embedding import Lookup, distinct, embed
from recsys_cli.models.embedding.tables import INITIAL_STD
from recsys_cli.models.model import Model, TrainingContext, pair_ids
from recsys_cli.models.ranking.layers import numeric_columns, unit_numbers
from recsys_cli.models.sequence.histories import Histories, Jagged, Windows
from recsys_cli.models.sequence.losses import (
    FalseNegatives,
    GeneralizedBinaryCrossEntropy,
    Loss,
    NegativeSampler,
    SampledSoftmax,
    Targets,
    catalog_loss,
    repeats,
)
from recsys_cli.registry import suggest

_PERIODS: dict[TimeFeature, int] = {"hour_of_day": 86_400, "day_of_week": 604_800}
"""Seconds."""
_HARMONICS = 3
_FIRST, _LAST = 315_532_800, 4_102_444_800
"""Seconds of the years 1980 and 2100. Other times are unknown, such as those of a history in a request without times."""


def item_columns(
    schema: Schema, item: Column, wanted: Literal["all"] | Sequence[str] | None, *, option: str = "item_features"
) -> tuple[Column, ...]:
    """Return the columns of `model.item_features` or another option, in the item's dimension table.

    Raises:
        ConfigError: The table has no such column, or no column at all.
    """
    if not wanted:
        return ()
    columns = {column.name: column for column in schema.in_table(item.name) if column.role is Role.FEATURE}
    if not columns:
        raise ConfigError(
            f"model.{option}: the prepared data has no features of {item.name} in a table of their own",
            hint=f"add {{op: JoinExternal, table: …, on: {item.name}, columns: […]}} to features.ops with etl.layout=star and run "
            f"recsys etl, or remove model.{option}",
        )
    for name in columns if wanted == "all" else wanted:
        if name not in columns:
            raise ConfigError(
                f"model.{option}: no feature {name!r} of {item.name}{suggest(name, list(columns))}",
                hint=f"the features of {item.name} are {', '.join(columns)}",
            )
    return tuple(columns.values()) if wanted == "all" else tuple(columns[name] for name in wanted)


class ItemFeatures(nn.Module):
    """Item vectors v = e + Σ_c mean_{k in c} E_c[k] + W x: the embedding of the id plus those of its features.

    The sum of Kula, "Metadata embeddings for user and item cold-start recommendations" (2015), as input and as candidate
    of a sequence model; SASRec with features in the input alone is SASRecF in the comparison of Zhou et al., "S3-Rec"
    (2020). Categories c have a table each, of the width of the item's; x are numbers and given vectors, each vector
    divided by its length. A weighted list is a weighted sum, an empty list and a missing vector are zero.
    """

    def __init__(self, columns: Sequence[Column], dim: int) -> None:
        super().__init__()
        self.categorical = tuple(column for column in columns if column.kind is Kind.CATEGORICAL)
        self._numeric = numeric_columns(columns)
        self.projection: nn.Linear | None = None
        if len(self._numeric):
            self.projection = nn.Linear(len(self._numeric), dim, bias=False)
            nn.init.normal_(self.projection.weight, std=INITIAL_STD)

    def forward(self, vectors: Tensor, features: Mapping[str, Feature], lookups: Mapping[str, Lookup]) -> Tensor:
        """Return item vectors, shape (I, D), from the embeddings of the ids, shape (I, D)."""
        for column in self.categorical:
            vectors = vectors + _mean(lookups[column.name].spread(), features[column.name])
        if self.projection is not None:
            vectors = vectors + self.projection(unit_numbers(features, self._numeric))
        return vectors


def _mean(sums: Tensor, feature: Feature) -> Tensor:
    if not isinstance(feature, Ragged) or feature.weights is not None:
        return sums
    return sums / feature.offsets.diff().clamp(min=1).unsqueeze(1)


class TimeFeatures(nn.Module):
    """Vectors W f(t) of times t, with f(t) = (sin 2πkt/p, cos 2πkt/p) for k = 1, 2, 3 and each period p.

    A time zone turns the pairs, which W undoes, so times in UTC need no correction. Three harmonics tell all days of a
    week apart. An unknown time has a vector of zeros.

    Args:
        names: Periods.
        dim: Width of the vectors.
        timestamp: Column of the times; without a unit, seconds since 1970.
    """

    def __init__(self, names: Sequence[TimeFeature], dim: int, timestamp: Column) -> None:
        super().__init__()
        self._timestamp = timestamp
        self._ticks = TICKS[timestamp.unit or "s"]
        self._periods = [_PERIODS[name] for name in names]
        self.projection = nn.Linear(2 * _HARMONICS * len(names), dim, bias=False)
        nn.init.normal_(self.projection.weight, std=INITIAL_STD)

    def forward(self, times: Tensor) -> Tensor:
        """Return a vector per time, shape (..., D)."""
        seconds = times / self._ticks
        parts = []
        for period in self._periods:
            phase = (seconds.remainder(period) * (2 * math.pi / period)).float().unsqueeze(-1)
            angles = phase * torch.arange(1, _HARMONICS + 1, device=times.device)
            parts += [angles.sin(), angles.cos()]
        vectors: Tensor = self.projection(torch.cat(parts, dim=-1))
        return vectors * self._is_known(times).unsqueeze(-1)

    def check(self, times: Tensor) -> None:
        """Check the times of train.

        Raises:
            ConfigError: Most are no times, such as positions in a history.
        """
        if len(times) and float(self._is_known(times).float().mean()) < 0.5:
            name, unit = self._timestamp.name, self._timestamp.unit or "s"
            raise ConfigError(
                f"model.time_features: {name} has no times: most values are not between 1980 and 2100 in {unit} since 1970",
                hint=f"give the unit of the column, such as dataset.interactions.times={{{name}: ms}}, and run recsys etl; "
                "or remove model.time_features",
            )

    def _is_known(self, times: Tensor) -> Tensor:
        return (times >= _FIRST * self._ticks) & (times < _LAST * self._ticks)


_BLOCK = 1 << 16
"""Items per block in scoring; users come in blocks, so that memory does not grow with their number."""


class SequenceModel(Model):
    """A model of chronological user histories, with one embedding table for input and output.

    By default the target at each position is the next item, so `states` has to be causal. For another training task a
    model overrides `window`, `targets_of`, `predict`, `false_negatives` and `encode`.

    A user's vector follows from the history of the context; a longer one needs no retraining. A user without a history
    has a vector of zeros. With `item_features` items are scored by content as well, users by their history only.
    """

    rows = "users"
    loss_options = frozenset({"features.weight"})
    scoring = "dot_product"
    folds_in = True
    placements = ("device", "host")
    uncompiled = ("_catalog_loss", "_vectors_by_content")
    bf16_on_cpu = False  # small matrices: backward passes of bf16 take three times as long
    reads_times: ClassVar[bool] = False
    """Whether `states` takes the times of the items."""

    config: SequenceOptions
    network: nn.Module
    chosen_length: Tensor
    histories: Histories
    negatives: NegativeSampler
    join: Callable[[Mapping[str, Tensor]], Mapping[str, Feature]]

    def __init__(self, config: SequenceOptions, schema: Schema) -> None:
        super().__init__()
        self.config = config
        if config.max_seq_len is None:
            self.register_buffer("chosen_length", torch.zeros((), dtype=torch.int64))
        self.user, self.item = schema.only(Role.USER), schema.only(Role.ITEM)
        dim, of_item = config.embedding_dim, item_columns(schema, self.item, config.item_features)
        self.by_content = bool(of_item)
        self.features = ItemFeatures(of_item, dim) if of_item else None
        tables = [self.item, *(self.features.categorical if self.features else ())]
        self.items = embed(tables, dim)
        self.periods: TimeFeatures | None = None
        if config.time_features:
            self.periods = TimeFeatures(config.time_features, dim, schema.only(Role.TIMESTAMP))

    def states(self, vectors: Tensor, layout: Jagged, times: Tensor | None = None, at: Tensor | None = None) -> Tensor:
        """Return the states of the sequences after their items: those of `network` by default.

        Args:
            vectors: Packed item vectors, shape (T, D). An empty sequence has one item, with a vector of zeros.
            layout: Of the sequences.
            times: Of the items, shape (T,), for models that read them.
            at: Ascending places of the items whose states are needed, shape (P,); None for all.

        Returns:
            Shape (P, D).
        """
        states: Tensor = self.network(vectors, layout, times, at)
        return states

    @property
    def length(self) -> int:
        """Maximum sequence length: of the options, or chosen at the first context, and stored with the weights."""
        return self.config.max_seq_len or int(self.chosen_length)

    @property
    def window(self) -> int:
        """Items per user in a training step: the input plus one, as the last item is a target only."""
        return self.length + 1

    def targets_of(self, items: float) -> float:
        """Return the mean number of targets in a window of `items` items: all but the first."""
        return items - 1

    def predict(self, windows: Windows, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Choose targets and predict them: each item but the first, from those before it.

        Args:
            windows: Items of B users, T in all, with up to `window` of each.
            vectors: Item vectors, with `time_features` plus those of their times; shape (T, D).

        Returns:
            The mask of P targets in the items, bool, shape (T,); and the prediction of each target in order, shape (P, D).
            Its dot product with an item vector is the item's score.
        """
        layout = windows.layout
        inputs = Jagged((windows.counts - 1).clamp(min=1))  # a window without targets has one as well
        read = layout.positions < inputs.counts[layout.rows]
        times = None if windows.times is None else windows.times[read]
        states = self.states(vectors[read], inputs, times)
        return layout.positions > 0, states[(windows.counts > 1)[inputs.rows]]

    def false_negatives(self, windows: Windows, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the targets for which each item of the windows is a false negative: all from the item itself on.

        Evaluation filters seen items, so training to rank them low is wasted: a small model then ranks low all items
        similar to the seen ones.

        Args:
            windows: Items of B users, T in all.
            targets: Mask of P targets in the items, bool, shape (T,).

        Returns:
            The first target and the one after the last, 0 to P, int64, shape (T,) each.
        """
        layout, before = windows.layout, F.pad(targets.cumsum(0), (1, 0))
        # A repeated item has no targets of its own, so that the pairs are never more than targets × negatives.
        last = before[layout.offsets[1:]][layout.rows]
        return before[:-1], torch.where(repeats(windows.items, layout.rows), before[:-1], last)

    def encode(self, users: Tensor) -> Tensor:
        """Return the vectors of B users, shape (B, D): the states after their latest items."""
        windows = self.histories.last(users, self.length)
        return self.states(self.window_vectors(windows), windows.layout, windows.times, windows.layout.last)

    def set_context(self, context: TrainingContext) -> None:
        """Sort interactions into histories, and choose the maximum length if the options leave it open."""
        num_items = int(self.item.cardinality or 0)
        self.join = context.join
        self.histories = Histories.of(
            context.interactions(),
            num_users=int(self.user.cardinality or 0),
            positive_only=self.config.positive_only,
            with_times=self.reads_times or self.periods is not None,
            device=self.device,
        )
        if self.training and self.periods is not None and self.histories.times is not None:
            self.periods.check(self.histories.times)
        if self.config.max_seq_len is None and not self.length:
            self.chosen_length.fill_(min(max(self.histories.quantile(QUANTILE), SHORTEST), LONGEST))
        number = self.config.negatives_of(max(num_items - FIRST, 1))
        dropout = self.config.dropout_of(self.histories.mean_count(len(self.histories.items)))
        for module in self.modules():
            if isinstance(module, nn.Dropout) and self.config.dropout is None:
                module.p = dropout
        found = {"max_seq_len": self.length, "num_negatives": number, "dropout": dropout}
        self.chosen = {name: value for name, value in found.items() if getattr(self.config, name) is None}
        counts = torch.bincount(self.histories.items, minlength=num_items)
        power = self.config.negative_sampling_power
        self.negatives = NegativeSampler(
            counts,
            number=number,
            power=power if power is not None else 0.0 if self.config.loss == "gbce" else 0.5,
        )
        self._targets = max(self.targets_of(self.histories.mean_count(self.window)), 1.0)

    def loss(self, batch: Batch, *, scores: Tensor | None = None) -> Tensor:
        """Return the mean over users of the sum of weight * loss of a user's targets / their mean number.

        A weight is that of the target's row. The constant divisor lets parts of a batch add up.
        """
        del scores
        users = batch.features[self.user.name]
        assert isinstance(users, Tensor)
        order = self.histories.longest_first(users)
        windows = self.histories.random_windows(users[order], self.window)
        negatives, log_expected = self.negatives.sample()
        vectors = self.item_vectors(torch.cat([windows.items, negatives]))
        vectors, candidates = vectors.split([len(windows.items), len(negatives)])
        places, predictions = self.predict(windows, self._with_times(windows, vectors))
        weights = None if windows.weights is None else windows.weights[places]
        total = self._catalog_loss(
            Targets(predictions, vectors[places], weights),
            candidates,
            self._loss(log_expected),
            FalseNegatives.of(windows.items, *self.false_negatives(windows, places), negatives),
        )
        return total / (self._targets * batch.num_rows)

    _catalog_loss = staticmethod(catalog_loss)

    def _loss(self, log_expected: Tensor) -> Loss:
        if self.config.loss == "softmax":
            return SampledSoftmax(log_expected)
        rate = min(1.0, len(log_expected) / max(int(self.item.cardinality or 0) - FIRST - 1, 1))
        return GeneralizedBinaryCrossEntropy.calibrated(self.config.gbce_calibration, rate=rate)

    def window_vectors(self, windows: Windows) -> Tensor:
        """Return the input vectors of T items of windows, shape (T, D), zero at padding."""
        return self._with_times(windows, self.item_vectors(windows.items))

    def _with_times(self, windows: Windows, vectors: Tensor) -> Tensor:
        """Add the vectors of the items' own times, if the model reads them."""
        if self.periods is None or windows.times is None:
            return vectors
        return vectors + self.periods(windows.times) * (windows.items != PADDING).unsqueeze(1)

    def score(self, batch: Batch) -> Tensor:
        """Return the dot products of the rows' users and items, shape (B,); each distinct user is encoded once."""
        users, items = pair_ids(batch, self.user, self.item)
        used, index = torch.unique(users, return_inverse=True)
        vectors = self._vectors({**batch.features, self.item.name: items})
        return (self.user_vectors(used)[index] * vectors).sum(dim=1)

    def user_vectors(self, users: Tensor) -> Tensor:
        """Return user vectors after the whole history, shape (U, D)."""
        counts = self.histories.offsets.diff()[users.long()]
        order = self.histories.longest_first(users)
        blocks = users[order].split(max(1, _BLOCK // self.length))
        vectors = torch.cat([self.encode(block) for block in blocks]).float()
        return vectors[order.argsort()] * (counts > 0).unsqueeze(1)

    def item_vectors(self, items: Tensor) -> Tensor:
        """Return item vectors, shape (I, D)."""
        if self.features is None:
            return self._vectors({self.item.name: items})
        return self._vectors_by_content(items)

    def _vectors_by_content(self, items: Tensor) -> Tensor:
        """Return item vectors with features, shape (I, D), each distinct item computed once."""
        used, index = distinct(items)
        return F.embedding(index, self._vectors(self.join({self.item.name: used})))

    def _vectors(self, features: Mapping[str, Feature]) -> Tensor:
        """Return the item vectors of ids with their features, shape (I, D)."""
        lookups = self.items.lookups(Batch(features, {}))
        vectors = lookups[self.item.name].spread()
        return vectors if self.features is None else self.features(vectors, features, lookups)
