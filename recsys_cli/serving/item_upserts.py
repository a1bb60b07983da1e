"""Items with raw features given after training: new cold items, and trained items with other features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import torch

from recsys_cli.batch import Batch
from recsys_cli.errors import ConfigError, DataError
from recsys_cli.features.columns import SHARED_ID, row_column
from recsys_cli.features.schema import FIRST, Kind
from recsys_cli.features.spec import cast_ids
from recsys_cli.loader import DimensionTables
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.ops.steps import COLD, Gather
from recsys_cli.ops.values import element, from_arrow
from recsys_cli.serving.encoder import TableEncoder
from recsys_cli.serving.ids import IdIndex
from recsys_cli.serving.item_features import ChangedFeatures
from recsys_cli.serving.recommender import Recommender
from recsys_cli.serving.served import ServedModel

Ints = npt.NDArray[np.int64]
_WRONG = (TypeError, ValueError, OverflowError, KeyError, pa.ArrowException)
"""Errors of ops about values of other types."""
_SPARE = 1_000
"""Encoded rows of former upserts kept in memory, next to as many as there are items."""


@dataclass(frozen=True)
class ItemValues:
    """An item with its raw values.

    Attributes:
        item: Raw id.
        features: Raw values by column; a missing column is null.
        title: Title; None for the title of the training.
        at: Order among the values of an item.
    """

    item: Any
    features: Mapping[str, Any]
    title: str | None = None
    at: int = 0


@dataclass(frozen=True)
class _Rows:
    """Places of N upserted items in the table of items.

    Attributes:
        ids: Raw ids, shape (N,).
        is_new: Items without a row in the table of the training, shape (N,).
        rows: Table rows, shape (N,).
        order: Position of each table row among the rows of the training followed by the N rows.
    """

    ids: pa.Array
    is_new: npt.NDArray[np.bool_]
    rows: Ints
    order: Ints


class ItemUpserts:
    """Recommenders of one model with upserted items; for one thread, that of the recommender.

    Each recommender is made of the model's own parts and all upserted items, as if `etl` had found the new ones in the table
    of items: as cold items.

    The model of `base` is shared.

    Attributes:
        why_not: The reason against upserts, as a clause without a full stop; None if they are possible.
        columns: Types of the raw columns.
        refused: Messages about values that do not fit this model, by raw id as text.
    """

    def __init__(self, base: Recommender) -> None:
        self._base = base.served
        self._scorer = base.scorer
        self.columns: Mapping[str, pa.DataType] = {}
        self.refused: dict[str, str] = {}
        self.why_not = _why_not(self._base)
        if self.why_not is None:
            try:
                self._encoder = TableEncoder(self._base.fitted, self._base.item.name, self._base.indexes)
                self.columns = self._encoder.inputs
                self._encoded = self._encoder.encode([])
            except ConfigError as error:
                self.why_not = error.message
        self._positions: dict[str, int] = {}
        self._ats: dict[str, int] = {}

    def check(self, items: Sequence[ItemValues]) -> None:
        """Check new values.

        Raises:
            DataError: A value does not fit its column, an id cannot occur, or the model has no finite score.
        """
        finite = self._finite(items, self._encode(items))
        if not finite.all():
            raise self._not_finite(items[int((~finite).nonzero()[0][0])])

    def _finite(self, items: Sequence[ItemValues], rows: pa.Table) -> npt.NDArray[np.bool_]:
        """Return whether the model has a finite score of each item, by its prepared rows."""
        served, item = self._base, self._base.item.name
        places = self._places([one.item for one in items])
        tables = self._tables(rows, places)
        users = torch.full((len(items),), FIRST, dtype=torch.int32)
        features = tables.join({served.user.name: users, item: torch.from_numpy(places.rows.astype(np.int32))})
        if any(column.name not in features for column in served.schema.features):
            return np.full(len(items), True)  # the model cannot rank; a request brings its own features
        with torch.inference_mode():
            finite: npt.NDArray[np.bool_] = torch.isfinite(served.model.score(Batch(features, {}))).numpy()
        return finite

    def _not_finite(self, one: ItemValues) -> DataError:
        numbers = [name for name, kind in self.columns.items() if pa.types.is_primitive(element(kind))]
        return DataError(
            f"item {one.item}: the score of {self._base.source.name} is not a finite number",
            hint=f"give usual numbers for {', '.join(numbers) or 'the features'}",
        )

    def recommender(self, items: Mapping[str, ItemValues]) -> Recommender:
        """Return the recommender with upserted items, by raw id as text; values that do not fit are in `refused`."""
        self._scorer.item_vectors  # noqa: B018 - cached before the model gets the features of another recommender
        kept = self._remember(items)
        places = self._places([one.item for one in kept])
        rows = self._chosen([str(one.item) for one in kept])
        recommender = Recommender(self._changed(kept, rows, places))
        changed = recommender.catalog.places(places.rows[~places.is_new])
        recommender.scorer.reuse(self._scorer, changed[changed >= 0])
        return recommender

    def _encode(self, items: Sequence[ItemValues]) -> pa.Table:
        """Return the prepared rows of items.

        Raises:
            DataError: A value does not fit its column, or an id cannot occur.
        """
        try:
            if self._base.items.cast([one.item for one in items]).null_count:
                raise DataError(f"ids are {self._base.items.values.type}")
            return self._checked(self._encoder.encode([one.features for one in items]))
        except (DataError, *_WRONG) as error:
            if len(items) > 1:
                for one in items:
                    self._encode([one])
            reason = error.message if isinstance(error, DataError) else f"a value does not fit its column: {error}"
            hint = (error.hint if isinstance(error, DataError) else None) or "GET /bundles has the types of the columns"
            raise DataError(f"item {items[0].item}: {reason.removeprefix('row 1, ')}", hint=hint) from error

    def _checked(self, rows: pa.Table) -> pa.Table:
        """Check the lengths of vectors, and the weights of lists.

        Raises:
            DataError: A vector has another length than in train, or weights do not fit their list.
        """
        for column in self._base.schema.features:
            if column.name not in rows.column_names or not column.ragged:
                continue
            lengths = pc.list_value_length(rows[column.name]).to_numpy()
            if column.weights is not None:
                weights = rows[column.weights]
                equal = np.array_equal(pc.list_value_length(weights).to_numpy(), lengths)
                if not equal or not np.isfinite(pc.list_flatten(weights).to_numpy()).all():
                    hint = f"give one finite number of {column.weights} for each element"
                    raise DataError(f"column {column.name}: {column.weights} are no weights of its elements", hint=hint)
            size = column.lengths[1] if column.kind is Kind.NUMERIC and column.lengths is not None else None
            if size is not None and (wrong := lengths[~np.isin(lengths, (0, size))]).size:
                text = f"column {column.name}: {wrong[0]} numbers, and the model needs {size}"
                raise DataError(text, hint="give a vector of this length, or null")
        return rows

    def _remember(self, items: Mapping[str, ItemValues]) -> list[ItemValues]:
        """Encode values without a row so far, and return the items of this model in order of their ids."""
        fresh = [one for name, one in items.items() if self._ats.get(name) != one.at]
        self.refused = {name: message for name, message in self.refused.items() if name in items}
        if fresh:
            fitting, rows = self._fitting(fresh)
            first = self._encoded.num_rows
            self._encoded = pa.concat_tables([self._encoded, rows]).combine_chunks()
            self._positions |= {str(one.item): first + number for number, one in enumerate(fitting)}
        self._ats = {name: one.at for name, one in items.items()}
        good = sorted((one for name, one in items.items() if name not in self.refused), key=lambda one: one.at)
        raw = self._base.items.cast([one.item for one in good]).to_pylist()
        kept = dict(zip(raw, good, strict=True))  # the latest of several spellings of an id
        return sorted(kept.values(), key=lambda one: str(one.item))

    def _fitting(self, items: Sequence[ItemValues]) -> tuple[list[ItemValues], pa.Table]:
        """Return the items whose values fit, and their prepared rows; the others are refused."""
        for one in items:
            self.refused.pop(str(one.item), None)
        try:
            rows = self._encode(items)
        except DataError:
            for one in items:
                try:
                    self._encode([one])
                except DataError as error:
                    self.refused[str(one.item)] = error.message
            items = [one for one in items if str(one.item) not in self.refused]
            rows = self._encode(items)
        finite = self._finite(items, rows)
        for one, is_finite in zip(items, finite, strict=True):
            if not is_finite:
                self.refused[str(one.item)] = self._not_finite(one).message
        return [one for one in items if str(one.item) not in self.refused], rows.filter(pa.array(finite))

    def _chosen(self, names: Sequence[str]) -> pa.Table:
        """Return the encoded rows of items; rows of former upserts are dropped from time to time."""
        chosen = self._encoded.take(pa.array([self._positions[name] for name in names], pa.int64())).combine_chunks()
        if self._encoded.num_rows > 2 * len(names) + _SPARE:
            self._encoded, self._positions = chosen, {name: row for row, name in enumerate(names)}
            self._ats = {name: at for name, at in self._ats.items() if name in self._positions}
        return chosen

    def _places(self, raw: Sequence[Any]) -> _Rows:
        ids = self._base.items.cast(raw)
        encoded = self._base.items.encode(raw)
        is_new = encoded < 0
        num_rows = self._base.tables.num_rows(self._base.item.name)
        rows = np.where(is_new, num_rows - 1 + np.cumsum(is_new), encoded)
        order = np.arange(num_rows + int(is_new.sum()))
        order[rows] = num_rows + np.arange(len(raw))
        return _Rows(ids, is_new, rows, order)

    def _tables(self, rows: pa.Table, places: _Rows) -> DimensionTables:
        """Return the dimension tables with prepared rows of items."""
        item = self._base.item.name
        present = torch.from_numpy(np.where(places.is_new, 0, places.rows))
        ids = np.where(places.is_new, self._shared_ids(places.ids), self._base.tables.ids(item, present).numpy())
        column = pa.array(ids.astype(np.int32))
        return self._base.tables.with_rows(item, rows.append_column(SHARED_ID, column), places.order)

    def _shared_ids(self, ids: pa.Array) -> Ints:
        """Return the encoded ids that raw ids outside train share."""
        _, op = self._base.fitted.plan.encoder_of(self._base.item.name)
        encoded: Ints = self._base.items.vocabulary.encode(from_arrow(ids), op.num_buckets).data.astype(np.int64)
        return encoded

    def _changed(self, items: Sequence[ItemValues], rows: pa.Table, places: _Rows) -> ServedModel:
        base = self._base
        ids = base.items.with_cold(places.ids.filter(pa.array(places.is_new)))
        served = replace(
            base,
            items=ids,
            titles=_titles(base.titles, len(ids.values), items, ids.positions_of(places.rows)),
            item_values=_values(base.item_values, len(ids.values), items, ids.positions_of(places.rows)),
            indexes={**base.indexes, row_column(base.item.name): ids.cold},
        )
        served.__dict__.update(
            schema=base.schema,
            visible_interactions=base.visible_interactions,
            by_train_rows=base.by_train_rows,
            tables=self._tables(rows, places),
            features=ChangedFeatures(base.features, rows, places.order),
            fitted=self._fitted(ids),
        )
        return served

    def _fitted(self, ids: IdIndex) -> FittedPlan:
        """Return the fitted plan with all cold items."""
        fitted, key = self._base.fitted, self._base.item.name
        cold = ids.values.slice(ids.num_train)
        table = pa.table({
            "value": cold,
            "row": np.arange(ids.cardinality, ids.cardinality + len(cold), dtype=np.int32),
            "id": self._shared_ids(cold).astype(np.int32),
            "count": np.zeros(len(cold), dtype=np.int64),
        })  # fmt: skip
        changed = replace(fitted, state={**fitted.state, (COLD, key): table})
        changed.__dict__["program"] = fitted.program
        return changed


def _why_not(served: ServedModel) -> str | None:
    """Return the reason why a model cannot use the features of an item."""
    name = served.source.name
    if not served.model.ranks_cold_items:
        return f"{name} scores items by their ids, not by features"
    fitted, item = served.fitted, served.item.name
    columns = {column.name for column in fitted.schema("star").in_table(item)}
    if not columns & {column.name for column in served.schema.features}:
        return f"the features of {name} have none of items: features.ops joins no table on {item}"
    for step in fitted.program.steps:
        if isinstance(step.op, Gather) and step.op.table == item:
            return f"an op of features.ops reads {', '.join(step.op.columns)} of items and columns of the interactions"
    return None


def _titles(present: pa.Array | None, number: int, items: Iterable[ItemValues], positions: Ints) -> pa.Array | None:
    """Return the titles of a number of items, with those of upserted items at their positions."""
    given = {int(position): one.title for position, one in zip(positions, items, strict=True) if one.title is not None}
    if present is None and not given:
        return None
    kind = pa.string() if present is None else present.type
    titles = pa.nulls(0, kind) if present is None else present
    titles = pa.concat_arrays([titles, pa.nulls(number - len(titles), kind)])
    order = np.arange(number)
    order[list(given)] = number + np.arange(len(given))
    return pa.concat_arrays([titles, pa.array(given.values(), kind)]).take(pa.array(order))


def _values(present: pa.Table | None, number: int, items: Sequence[ItemValues], positions: Ints) -> pa.Table | None:
    """Return the raw values of a number of items, with those of upserted items at their positions."""
    if present is None:
        return None
    order = np.arange(number)
    order[positions] = number + np.arange(len(items))
    columns = {}
    for name, column in zip(present.column_names, present.columns, strict=True):
        added = pa.nulls(number - len(present), column.type)
        given = cast_ids([one.features.get(name) for one in items], column.type)
        columns[name] = pa.concat_arrays([*column.chunks, added, given]).take(pa.array(order))
    return pa.table(columns)
