"""Random raw rows for the check of programs from raw values, and the same rows encoded by the row encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from recsys_cli.batch import Batch, Feature
from recsys_cli.features.columns import row_column
from recsys_cli.features.spec import is_list
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.ops.grouping import GroupOp
from recsys_cli.serving.encoder import RowEncoder
from recsys_cli.serving.encoder.values import element
from recsys_cli.serving.served import ServedModel

_NULLS, _UNSEEN, _LONGEST = 0.1, 0.1, 4


@dataclass(frozen=True)
class RawSample:
    """Raw rows, and their encoding.

    Attributes:
        columns: Raw values by column, None for null.
        batch: Encoded features, those of the dimension tables, and the table rows of keys.
    """

    columns: Mapping[str, Sequence[Any]]
    batch: Batch


class RawSampler:
    """Source of random raw rows with null, unseen and known values.

    Args:
        served: The model.
        names: Encoded columns in use.
    """

    def __init__(self, served: ServedModel, names: frozenset[str]) -> None:
        self._served, self._fitted = served, FittedPlan.read(served.data.folder)
        only = [column.name for column in served.schema.features if column.table is None and column.name in names]
        self._encoder = RowEncoder(self._fitted, served.schema, only=only)
        self._known = {name: self._values(name) for name in self._encoder.inputs}

    def sample(self, num_rows: int, *, seed: int = 0) -> RawSample:
        """Return rows; without nulls if a number would be NaN."""
        sample = self._encoded(self._draw(num_rows, np.random.default_rng(seed), nulls=_NULLS))
        if sample.batch.not_finite([column.name for column in self._served.schema.features if column.is_filled]):
            sample = self._encoded(self._draw(num_rows, np.random.default_rng(seed), nulls=0.0))
        return sample

    def _values(self, name: str) -> list[Any]:
        """Return known values of a raw column, from its vocabulary, its fitted groups and the cold keys of its table."""
        plan, values = self._fitted.plan, []
        for index, op in enumerate(plan.ops):
            for column in op.encodes:
                if plan.raw_source(column) == name or column == name:
                    values += self._fitted.state[index, op.vocabulary_of(column)].column("value").to_pylist()  # type: ignore[union-attr]
            if isinstance(op, GroupOp) and name in op.columns and not values:  # later keys are ids
                values += self._fitted.state[index, name].column("key0").drop_null().to_pylist()
        cold = self._fitted.cold_keys(name)
        return values if cold is None else values + cold.column("value").to_pylist()

    def _draw(self, num_rows: int, rng: np.random.Generator, *, nulls: float) -> dict[str, list[Any]]:
        drawn = {}
        lengths = rng.integers(
            0, _LONGEST + 1, num_rows
        )  # one length per row: elements and their weights belong together
        for name, kind in self._encoder.inputs.items():
            if is_list(kind):
                drawn[name] = [[self._one(name, kind, rng, nulls) for _ in range(size)] for size in lengths]
            else:
                drawn[name] = [self._one(name, kind, rng, nulls) for _ in range(num_rows)]
        return drawn

    def _one(self, name: str, kind: pa.DataType, rng: np.random.Generator, nulls: float) -> Any:
        known, held, types = self._known[name], element(kind), pa.types
        if rng.random() < nulls:
            return None
        if known and rng.random() >= _UNSEEN:
            return known[rng.integers(len(known))]
        if types.is_boolean(held):
            return bool(rng.integers(2))
        if types.is_integer(held) or types.is_temporal(held):
            ends = np.iinfo(held.to_pandas_dtype()) if types.is_integer(held) else np.iinfo(np.int32)
            return int(rng.integers(max(int(ends.min), 0), min(int(ends.max), 1000)))
        if types.is_floating(held):
            return float(rng.standard_normal() * 3 + 1)
        return f"unseen {rng.integers(1000)}"

    def _encoded(self, columns: dict[str, list[Any]]) -> RawSample:
        served, features = self._served, self._encoder.encode(columns)
        rows: dict[str, torch.Tensor] = {}
        for key in [name for name in features if served.tables.num_rows(name)]:
            row = features.pop(row_column(key), features[key])
            assert isinstance(row, torch.Tensor)
            rows[key] = row
        joined: dict[str, Feature] = {**features, **served.tables.join(rows)}
        return RawSample(columns, Batch(joined | {row_column(key): row for key, row in rows.items()}, {}))
