"""Histories of the rows of a batch: a window of events, or list columns of pooled embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from recsys_cli.batch import Batch, Feature, Ragged
from recsys_cli.errors import ConfigError
from recsys_cli.features.columns import HISTORY_USER
from recsys_cli.features.schema import Column, Role, Schema
from recsys_cli.interactions import Interactions
from recsys_cli.models.history.config import HistoryFeature
from recsys_cli.models.history.store import NO_TIMES, UserHistories, Window, window_of_lists
from recsys_cli.models.model import TrainingContext


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
                lists = _of_events(features[column.name], events)
                means = Ragged(lists.values, lists.offsets[offsets], weights.repeat_interleave(lists.offsets.diff()))
                if lists.weights is not None:
                    means = replace(means, weights=means.weights * lists.weights)  # type: ignore[operator]
                added[f"{group} of {column.name}"] = means
        return replace(batch, features={**batch.features, **added})


def _of_events(feature: Feature, events: Tensor) -> Ragged:
    """Return the list of each event, shape (N,); single values as lists of one."""
    if isinstance(feature, Tensor):
        return Ragged(feature[events], torch.arange(len(events) + 1, device=events.device))
    lengths = feature.offsets.diff()[events]
    offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    jumps = (feature.offsets[events] - offsets[:-1]).repeat_interleave(lengths)
    places = torch.arange(len(jumps), device=events.device) + jumps
    weights = None if feature.weights is None else feature.weights[places]
    return Ragged(feature.values[places], offsets, weights)
