"""GPU execution of the Polars engine by cudf-polars, imported by the first query; Categorify as group-bys and joins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from recsys_cli.events import Emit, Message, ignore
from recsys_cli.features.columns import CODE, POSITION, VALUE
from recsys_cli.features.schema import FIRST, NULL, UNSEEN
from recsys_cli.ops import Categorify
from recsys_cli.ops.categorify import encode_column
from recsys_cli.ops.grouping import canonical_key
from recsys_cli.ops.op import Tables

Apply = Callable[[pl.LazyFrame], pl.LazyFrame]


@dataclass(frozen=True)
class Unit:
    """A part of a query for the GPU or the CPU, with its name in messages."""

    name: str
    apply: Apply


@dataclass
class Gpu:
    """Runs queries on the GPU, with the CPU as fallback and a warning for each part on the CPU."""

    emit: Emit = ignore
    _refused: set[str] = field(default_factory=set)

    def __getstate__(self) -> dict[str, Any]:
        """Drop the listener: it is local to the process."""
        return {"emit": ignore, "_refused": self._refused}

    def collect(self, query: pl.LazyFrame, *, name: str) -> pl.DataFrame:
        """Run a query, on the CPU after a GPU failure under the same name."""
        result = None if name in self._refused else self._attempt([Unit(name, lambda frame: frame)], query)
        return query.collect(engine="in-memory") if result is None else result

    def apply(self, units: Sequence[Unit], frame: pl.DataFrame) -> pl.DataFrame:
        """Apply parts of a query to rows; number and order of rows stay."""
        frame = frame.with_columns(pl.Series(POSITION, np.arange(frame.height, dtype=np.int64)))
        run: list[Unit] = []
        for unit in units:
            if unit.name in self._refused:
                frame = _on_cpu([unit], self._run(run, frame))
                run = []
            else:
                run.append(unit)
        return self._run(run, frame).drop(POSITION)

    def _run(self, units: Sequence[Unit], frame: pl.DataFrame) -> pl.DataFrame:
        """Run parts as one query; on failure, bisect to find the unsupported ones."""
        if not units:
            return frame
        query = frame.lazy()
        for unit in units:
            query = unit.apply(query)
        result = self._attempt(units, query)
        if result is not None and result.height == frame.height:
            return result if result.get_column(POSITION).is_sorted() else result.sort(POSITION)
        if len(units) == 1:
            return _on_cpu(units, frame)
        half = len(units) // 2
        return self._run(units[half:], self._run(units[:half], frame))

    def _attempt(self, units: Sequence[Unit], query: pl.LazyFrame) -> pl.DataFrame | None:
        # The streaming executor of cudf-polars loses or doubles groups (cudf#22932); a shard fits into memory.
        engine = pl.GPUEngine(executor="in-memory", raise_on_fail=True)
        try:
            return query.collect(engine=engine)
        except Exception as error:  # any error: the CPU retries, and an error in the data recurs there
            if len(units) == 1:
                self._refused.add(units[0].name)
                self.emit(Message(f"{units[0].name} runs on the CPU: {_reason(error)}", "warning"))
            return None


def _on_cpu(units: Sequence[Unit], frame: pl.DataFrame) -> pl.DataFrame:
    query = frame.lazy()
    for unit in units:
        query = unit.apply(query)
    return query.collect()


def _reason(error: Exception) -> str:
    """Return the unsupported features of an error message, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # cudf-polars lists unsupported features, one per line.
    listed = [line.removeprefix("- ") for line in lines if line.startswith("- ")]
    return "; ".join(listed) or f"{type(error).__name__}: {lines[0] if lines else ''}"


def learn_categorify(op: Categorify, frame: pl.LazyFrame, weight: pl.Expr) -> dict[str, pl.LazyFrame]:
    """Count like `Categorify.learn`."""
    queries = {}
    for column in op.learns:
        values = frame.select(canonical_key(column, frame).alias("value"), weight.cast(pl.Int64).alias("count"))
        if isinstance(values.collect_schema()["value"], pl.List):
            values = values.filter(pl.col("value").list.len() > 0).explode("value")
        queries[column] = values.group_by("value", maintain_order=True).agg(pl.col("count").sum())
    return queries


def units_of_categorify(op: Categorify, state: Tables, types: pl.Schema) -> Iterator[Unit]:
    """Yield a unit for the GPU, and one for the CPU: lists, and columns with hash buckets."""
    simple = [name for name in op.learns if not isinstance(types[name], pl.List) and not op.num_buckets]
    others = [name for name in op.learns if name not in simple]
    if simple:
        yield Unit("Categorify", partial(_joined, {name: state[op.vocabulary_of(name)] for name in simple}))
    if others:
        encode = {name: op.encoding(name, state) for name in others}
        yield Unit(
            "Categorify of lists or with buckets",
            lambda frame: frame.with_columns(encode_column(name, frame, to_ids) for name, to_ids in encode.items()),
        )


def _joined(vocabularies: Mapping[str, pa.Table], frame: pl.LazyFrame) -> pl.LazyFrame:
    order = frame.collect_schema().names()
    for name, vocabulary in vocabularies.items():
        ids = np.arange(FIRST, FIRST + vocabulary.num_rows, dtype=np.int32)
        value = canonical_key(name, frame)
        table = pl.LazyFrame({VALUE: pl.Series(pl.from_arrow(vocabulary.column("value"))), CODE: ids})
        kind = frame.select(value).collect_schema()[name]
        rows = frame.with_columns(value.alias(VALUE)).drop(name)
        joined = rows.join(table.cast({VALUE: kind}), on=VALUE, how="left", maintain_order="left", nulls_equal=False)
        encoded = pl.when(pl.col(VALUE).is_null()).then(NULL).otherwise(pl.col(CODE).fill_null(UNSEEN)).cast(pl.Int32)
        frame = joined.with_columns(encoded.alias(name)).drop(VALUE, CODE)
    return frame.select(order)
