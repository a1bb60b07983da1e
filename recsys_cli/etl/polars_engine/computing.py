"""The implementation of an op in the Polars engine. One of another package runs by itself, and its rows are checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

import polars as pl
import pyarrow as pa

from recsys_cli.errors import ConfigError
from recsys_cli.etl.implementations import ForeignModule, load
from recsys_cli.etl.polars_engine.ops import MODULES
from recsys_cli.features.columns import POSITION
from recsys_cli.ops.op import Op
from recsys_cli.ops.steps import Lookup


class Computing(Protocol):
    """Interface of an op's module in this engine; `learn` only for fitted ops."""

    def apply(self, op: Any, state: Mapping[str, pa.Table], frame: pl.LazyFrame) -> pl.LazyFrame:
        """Add or change the op's columns; number and order of rows stay."""

    def learn(self, op: Any, frame: pl.LazyFrame, weight: pl.Expr) -> Mapping[str, pl.LazyFrame]:
        """Return the queries for the partial aggregates of a shard; each row counts as `weight` interactions."""


def computing(op: Op | Lookup) -> Computing:
    """Return the implementation of an op.

    Raises:
        ConfigError: The op has none, or its module cannot be imported.
    """
    module = load(op, "polars", MODULES)
    return ForeignComputing(module) if isinstance(module, ForeignModule) else cast("Computing", module)


@dataclass(frozen=True)
class ForeignComputing:
    """The implementation of an op of another package: its queries run here, so that their errors name the op.

    Attributes:
        module: The module of the op.
    """

    module: ForeignModule

    def apply(self, op: Any, state: Mapping[str, pa.Table], frame: pl.LazyFrame) -> pl.LazyFrame:
        """Compute the op's columns.

        Raises:
            ConfigError: The op fails, or changes number or order of rows.
        """
        before = frame.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias(POSITION)).collect()
        after = self._collected(self.module.apply(op, state, before.lazy()))
        positions = after.get_column(POSITION).to_numpy() if POSITION in after.columns else None
        self.module.check_rows(positions, before.height)
        return after.drop(POSITION).lazy()

    def learn(self, op: Any, frame: pl.LazyFrame, weight: pl.Expr) -> Mapping[str, pl.LazyFrame]:
        """Return the partial aggregates of a shard.

        Raises:
            ConfigError: The op fails.
        """
        queries = self.module.learn(op, frame.collect().lazy(), weight)
        self.module.check_tables(queries, op.learns)
        return {name: self._collected(query).lazy() for name, query in queries.items()}

    def _collected(self, query: object) -> pl.DataFrame:
        if not isinstance(query, pl.LazyFrame):
            raise ConfigError(f"{self.module.title} returns {type(query).__name__} instead of a polars.LazyFrame")
        with self.module.guarded():
            return query.collect(engine="in-memory")
