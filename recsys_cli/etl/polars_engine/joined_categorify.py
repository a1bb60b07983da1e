"""Categorify as group-bys and joins, for GPUs; lists and hash buckets stay on the CPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
import polars as pl
import pyarrow as pa

from recsys_cli.etl.polars_engine.categorify import encode_column
from recsys_cli.etl.polars_engine.encoder import encoder_of
from recsys_cli.etl.polars_engine.gpu import Unit
from recsys_cli.etl.polars_engine.grouping import canonical
from recsys_cli.features.columns import CODE, VALUE
from recsys_cli.features.schema import FIRST, NULL, UNSEEN
from recsys_cli.ops import Categorify


def learn(op: Categorify, frame: pl.LazyFrame, weight: pl.Expr) -> dict[str, pl.LazyFrame]:
    """Count like `categorify.learn`."""
    queries = {}
    for column in op.learns:
        values = frame.select(canonical(column, frame).alias("value"), weight.cast(pl.Int64).alias("count"))
        if isinstance(values.collect_schema()["value"], pl.List):
            values = values.filter(pl.col("value").list.len() > 0).explode("value")
        queries[column] = values.group_by("value", maintain_order=True).agg(pl.col("count").sum())
    return queries


def units(op: Categorify, state: Mapping[str, pa.Table], types: pl.Schema) -> Iterator[Unit]:
    """Yield a unit for the GPU, and one for the CPU: lists, and columns with hash buckets."""
    simple = [name for name in op.learns if not isinstance(types[name], pl.List) and not op.num_buckets]
    others = [name for name in op.learns if name not in simple]
    if simple:
        yield Unit("Categorify", partial(_joined, {name: state[op.vocabulary_of(name)] for name in simple}))
    if others:
        encoders = {name: encoder_of(state[op.vocabulary_of(name)]) for name in others}
        encode = {name: partial(encoder, num_buckets=op.num_buckets) for name, encoder in encoders.items()}
        yield Unit(
            "Categorify of lists or with buckets",
            lambda frame: frame.with_columns(encode_column(name, frame, to_ids) for name, to_ids in encode.items()),
        )


def _joined(vocabularies: Mapping[str, pa.Table], frame: pl.LazyFrame) -> pl.LazyFrame:
    order = frame.collect_schema().names()
    for name, vocabulary in vocabularies.items():
        ids = np.arange(FIRST, FIRST + vocabulary.num_rows, dtype=np.int32)
        value = canonical(name, frame)
        table = pl.LazyFrame({VALUE: pl.Series(pl.from_arrow(vocabulary.column("value"))), CODE: ids})
        kind = frame.select(value).collect_schema()[name]
        rows = frame.with_columns(value.alias(VALUE)).drop(name)
        joined = rows.join(table.cast({VALUE: kind}), on=VALUE, how="left", maintain_order="left", nulls_equal=False)
        encoded = pl.when(pl.col(VALUE).is_null()).then(NULL).otherwise(pl.col(CODE).fill_null(UNSEEN)).cast(pl.Int32)
        frame = joined.with_columns(encoded.alias(name)).drop(VALUE, CODE)
    return frame.select(order)
