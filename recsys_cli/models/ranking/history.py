"""The user history as a feature: the latest items before the time of a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn

from recsys_cli.batch import Batch, Feature, Ragged, as_lists, joined
from recsys_cli.errors import ConfigError
from recsys_cli.features.columns import HISTORY_USER
from recsys_cli.features.schema import FIRST, PADDING, Column, Role, Schema
from recsys_cli.interactions import Interactions
from recsys_cli.models.configs.ranking import HistoryFeature
from recsys_cli.models.embedding import Embeddings, Lookup
from recsys_cli.models.embedding.tables import INITIAL_STD
from recsys_cli.models.model import TrainingContext

NO_TIMES = (
    "set features.timestamp, then run `recsys etl`; or name a list column with the histories in model.history.column"
)
_LABEL_DIM = 8
_MAX_ROWS = 2_048
"""Rows of an attention at once without gradients; affects only memory."""


@dataclass(frozen=True)
class Window:
    """The latest items of each of B histories, oldest first.

    Attributes:
        items: Encoded items, 0 at padding; int64, shape (B, L).
        mask: False at padding; shape (B, L).
        is_positive: Whether an item's interaction is positive; shape (B, L).
    """

    items: Tensor
    mask: Tensor
    is_positive: Tensor


@dataclass(frozen=True)
class UserHistories:
    """The interactions of all users, without cold-start users and items.

    Attributes:
        items: Items ordered by (user, time, row number), int32, shape (N,).
        is_positive: Shape (N,).
        offsets: Start of each user's items, then N; int64, shape (users + 1,).
        moments: Distinct timestamps, ascending, shape (T,).
        keys: user * (T + 1) + index of the timestamp, ascending, int64, shape (N,).
    """

    items: Tensor
    is_positive: Tensor
    offsets: Tensor
    moments: Tensor
    keys: Tensor

    @classmethod
    def of(cls, interactions: Interactions, *, num_users: int, device: torch.device | str = "cpu") -> Self:
        """Sort interactions into histories.

        Raises:
            ConfigError: The interactions have no timestamps.
        """
        if interactions.times is None:
            raise ConfigError("model.history needs timestamps, and the prepared data has none", hint=NO_TIMES)
        rows, offsets = interactions.by_user(num_users)
        assert rows.times is not None
        moments, index = np.unique(rows.times, return_inverse=True)
        keys = rows.user_idx.astype(np.int64) * (len(moments) + 1) + index
        arrays = rows.item_idx.astype(np.int32), rows.positive, offsets, moments, keys
        return cls(*(torch.from_numpy(array).to(device) for array in arrays))

    def window(self, users: Tensor, times: Tensor | None, length: int) -> Window:
        """Return the latest items of users (B,), at most `length`, strictly before `times` (B,); all for None."""
        users = users.long()
        users = users.where((users >= 0) & (users < len(self.offsets) - 1), PADDING)
        if times is None:
            ends = self.offsets[users + 1]
        else:
            index = torch.searchsorted(self.moments, times.to(self.moments.dtype))
            ends = torch.searchsorted(self.keys, users * (len(self.moments) + 1) + index)
        starts = torch.maximum(self.offsets[users], ends - length)
        width = max(1, int((ends - starts).max())) if len(users) else 1
        rows = starts.unsqueeze(1) + torch.arange(width, device=users.device)
        mask = rows < ends.unsqueeze(1)
        if not len(self.items):
            return Window(rows.new_full(rows.shape, PADDING), mask, mask)
        rows = rows.clamp(max=len(self.items) - 1)
        return Window(self.items[rows].long().masked_fill(~mask, PADDING), mask, self.is_positive[rows] & mask)


def window_of_lists(lists: Tensor, mask: Tensor) -> Window:
    """Return a window of padded lists of items (B, L), all positive; without null, unseen and cold items."""
    mask = mask & (lists >= FIRST)
    return Window(lists.long().masked_fill(~mask, PADDING), mask, mask)


def without_list(schema: Schema, options: HistoryFeature) -> Schema:
    """Return a schema without `options.column`, which is read as a history instead of a set of ids.

    Raises:
        ConfigError: The column is no list of items.
    """
    if options.column is None:
        return schema
    column, item = schema[options.column], schema.only(Role.ITEM)
    if not column.ragged or column.vocabulary is None or column.vocabulary != item.vocabulary:
        raise ConfigError(
            f"model.history.column: {column.name} is no list in the vocabulary of {item.name}",
            hint=f"encode both by one op: {{op: Categorify, columns: [{item.name}, {column.name}], joint: true}}",
        )
    return Schema(columns=schema.select(lambda one: one.name != column.name))


def pooled_columns(schema: Schema, options: HistoryFeature) -> tuple[Column, ...]:
    """Return the list columns that `HistoryReader.pooled` adds to a batch."""
    return tuple(
        column.model_copy(update={
            "name": f"{group} of {column.name}", "role": Role.FEATURE, "ragged": True, "table": None,
            "weights": None, "lengths": None,
        })
        for group in _groups(options)
        for column in event_columns(schema)
    )  # fmt: skip


def event_columns(schema: Schema) -> tuple[Column, ...]:
    """Return the categorical columns of an event: the item and the columns of its dimension table."""
    item = schema.only(Role.ITEM)
    of_item = schema.in_table(item.name)
    return (item, *(column for column in schema.categorical if column in of_item))


def _groups(options: HistoryFeature) -> tuple[str, ...]:
    return ("positive history", "other history") if options.by_label and options.column is None else ("history",)


class HistoryReader:
    """Reads histories of the context, or of a list column.

    A row sees interactions strictly before its own time: neither itself nor rows of the same moment. Rows without a time,
    such as candidates of a ranking, see all interactions of the context, which precede the evaluation. Rows with
    HISTORY_USER, held out from the context, see those of `set_earlier_rows`; a schema of such rows needs no user column.

    Raises:
        ConfigError: The data has no timestamps.
    """

    def __init__(self, options: HistoryFeature, schema: Schema) -> None:
        self.options = options
        self.columns = event_columns(schema)
        self._schema, self._item = schema, schema.only(Role.ITEM)
        self._num_users = max(
            (int(one.cardinality or 0) for one in schema.categorical if one.role is Role.USER), default=0
        )
        times = schema.select(lambda column: column.role is Role.TIMESTAMP and column.table is None)
        if options.column is None and not times:
            raise ConfigError("model.history needs timestamps, and the prepared data has none", hint=NO_TIMES)
        self.time = None if options.column is not None else times[0].name
        self._histories: UserHistories | None = None
        self._of_held_out: UserHistories | None = None
        self._context: TrainingContext | None = None

    def set_context(self, context: TrainingContext, device: torch.device) -> None:
        """Read the interactions of a context, unless the last one has the same function of them: a sort of all rows takes long."""
        last, self._context = self._context, context
        if self.time is None or not self._num_users:
            return
        is_read = self._histories is not None and self._histories.items.device == device
        if not (is_read and last is not None and last.interactions is context.interactions):
            self._histories = UserHistories.of(context.interactions(), num_users=self._num_users, device=device)

    def set_earlier_rows(self, interactions: Interactions, device: torch.device) -> None:
        """Read the interactions before held-out rows; see `Model.set_earlier_rows`."""
        if self.time is not None:
            num_users = int(interactions.user_idx.max(initial=0)) + 1
            self._of_held_out = UserHistories.of(interactions, num_users=num_users, device=device)

    def window(self, batch: Batch, *, training: bool) -> Window:
        """Return the history of each row.

        Raises:
            ConfigError: A batch of training has no times.
        """
        length = self.options.max_seq_len
        if self.options.column is not None:
            lists = batch.features[self.options.column]
            assert isinstance(lists, Ragged)
            return window_of_lists(*lists.padded(length))
        name = HISTORY_USER if HISTORY_USER in batch.features else self._schema.only(Role.USER).name
        users, histories = batch.features[name], self._of_held_out if name == HISTORY_USER else self._histories
        assert isinstance(users, Tensor)
        if histories is None:
            raise RuntimeError("the model has no histories: call set_context first")
        times = batch.features.get(str(self.time))
        if times is None and training and name != HISTORY_USER:
            raise ConfigError(
                f"a training batch has no column {self.time!r}, so its rows would see themselves in their histories",
                hint="read batches by Loader(…, times=True)",
            )
        assert not isinstance(times, Ragged)
        return histories.window(users, times, length)

    def features(self, items: Tensor) -> Mapping[str, Feature]:
        """Return the event columns of items, shape (U,), by name."""
        if self._context is None:
            raise RuntimeError("the model has no features of items: call set_context first")
        return {**self._context.join({self._item.name: items.int()}), self._item.name: items}

    def pooled(self, batch: Batch, *, training: bool) -> Batch:
        """Return the batch with list columns whose weighted sums are shares of the mean over the history."""
        window = self.window(batch, training=training)
        groups = {"history": window.mask}
        if len(_groups(self.options)) > 1:
            others = window.mask & ~window.is_positive
            groups = {"positive history": window.is_positive, "other history": others}
        added: dict[str, Feature] = {}
        distinct, inverse = torch.unique(window.items, return_inverse=True)
        features = self.features(distinct)
        lengths = window.mask.sum(1).clamp(min=1)  # of both groups, so that the sums show their shares
        for group, mask in groups.items():
            counts = mask.sum(1)
            offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
            weights = (1 / lengths).float().repeat_interleave(counts)
            events = inverse[mask]
            for column in self.columns:
                lists = as_lists(features[column.name]).picked(events)
                means = Ragged(lists.values, lists.offsets[offsets], weights.repeat_interleave(lists.offsets.diff()))
                if lists.weights is not None:
                    means = replace(means, weights=means.weights * lists.weights)  # type: ignore[operator]
                added[f"{group} of {column.name}"] = means
        return replace(batch, features={**batch.features, **added})


@dataclass(frozen=True)
class Events:
    """The target item and the history of each of B rows.

    Attributes:
        target: Embedding of the row's item, shape (B, E).
        distinct: Embeddings of the distinct items of all histories, shape (U, E), without the label.
        index: Index into `distinct`, shape (B, L).
        label: Embeddings of other and of positive events, shape (2, E).
        window: The histories.
    """

    target: Tensor
    distinct: Tensor
    index: Tensor
    label: Tensor
    window: Window

    def span(self, start: int, stop: int) -> Events:
        """Return the rows start, …, stop - 1, without columns of padding at the end."""
        parts = self.window.items, self.window.mask, self.window.is_positive
        width = max([1, *(parts[1][start:stop].any(0).nonzero() + 1).flatten().tolist()])
        window = Window(*(part[start:stop, :width] for part in parts))
        return replace(self, target=self.target[start:stop], index=self.index[start:stop, :width], window=window)

    def vectors(self) -> Tensor:
        """Return the embeddings of the histories, shape (B, L, E)."""
        return self.distinct[self.index] + self.label[self.window.is_positive.long()]

    def map(self, function: Callable[[Events], Tensor]) -> Tensor:
        """Return a function of the rows, (B, E) to (B, D); in small parts where no gradient is needed."""
        if torch.is_grad_enabled() or len(self.target) <= _MAX_ROWS:
            return function(self)
        return torch.cat(
            [function(self.span(start, start + _MAX_ROWS)) for start in range(0, len(self.target), _MAX_ROWS)]
        )


class EventEmbeddings(nn.Module):
    """Concatenated embeddings of an item, its categorical features, and the label of its interaction, zero for the target.

    History and target share the tables, as one lookup.
    """

    def __init__(self, reader: HistoryReader, embeddings: Embeddings) -> None:
        super().__init__()
        self._reader, self._embeddings = reader, [embeddings]  # a list, so that the tables have one owner
        self.names = tuple(column.name for column in reader.columns)
        self.item_dim = sum(embeddings.dims[name] for name in self.names)
        self.dim = self.item_dim + _LABEL_DIM
        self.label = nn.Parameter(torch.empty(2, _LABEL_DIM).normal_(std=INITIAL_STD))

    def forward(self, batch: Batch, *, training: bool) -> tuple[Events, Sequence[Lookup]]:
        """Return the events, and the lookups of the batch in the order of the tables."""
        window = self._reader.window(batch, training=training)
        distinct, index = torch.unique(window.items, return_inverse=True)
        of_items, num_rows = self._reader.features(distinct), batch.num_rows
        features = {name: joined([batch.features[name], of_items[name]]) for name in self.names}
        found = self._embeddings[0].lookups(Batch({**batch.features, **features}, {}))
        lookups = {name: _part(found[name], 0, num_rows) if name in features else found[name] for name in found}
        target = torch.cat([lookups[name].spread() for name in self.names], dim=1)
        vectors = torch.cat([_part(found[name], num_rows).spread() for name in self.names], dim=1)
        padding = target.new_zeros(1, _LABEL_DIM)
        label = torch.cat([self.label.new_zeros(2, self.item_dim), self.label], dim=1)
        target, vectors = (torch.cat([part, padding.expand(len(part), -1)], dim=1) for part in (target, vectors))
        return Events(target, vectors, index, label, window), list(lookups.values())


def _part(lookup: Lookup, start: int, stop: int | None = None) -> Lookup:
    """Return the rows start, …, stop - 1 of a lookup, to the last one for None."""
    if lookup.offsets is None:
        return replace(lookup, inverse=lookup.inverse[start:stop])
    offsets = lookup.offsets[start : None if stop is None else stop + 1]
    ids = slice(int(offsets[0]), int(offsets[-1]))
    weights = None if lookup.weights is None else lookup.weights[ids]
    return replace(lookup, inverse=lookup.inverse[ids], offsets=offsets - offsets[0], weights=weights)
