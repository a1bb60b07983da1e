"""Vocabularies of Categorify: counts, frequency threshold, size limit and order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.etl.counts import PACKED, add_up, in_order, unpacked, without_null
from recsys_cli.etl.given_vocabulary import read_vocabulary
from recsys_cli.etl.join_keys import canonical
from recsys_cli.features.columns import COUNTS, REST
from recsys_cli.features.schema import FIRST
from recsys_cli.ops import Categorify


def merge(parts: Sequence[pa.Table]) -> pa.Table:
    """Sum the counts by value, null included, in any order."""
    return add_up(parts)


def finalize(op: Categorify, merged: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """Compute values and order of each vocabulary, without null and NaN."""
    state: dict[str, pa.Table] = {}
    for vocabulary in op.vocabularies:
        columns = [column for column in op.learns if op.vocabulary_of(column) == vocabulary]
        valid = {column: _valid_counts(merged[column]) for column in columns}
        table = _vocabulary(op, vocabulary, add_up([*valid.values()]))
        state[vocabulary] = table
        for column, counts in valid.items():
            own = _counts_in(table, counts) if op.joint else table.column("count")
            if op.joint:
                state[column + COUNTS] = pa.table({"count": own})
            num_valid, num_encoded = _total(counts.column("count")), _total(own)
            state[column + REST] = pa.table({
                "null": pa.array([_total(merged[column].column("count")) - num_valid], pa.int64()),
                "unseen": pa.array([num_valid - num_encoded], pa.int64()),
            })  # fmt: skip
    return state


def counts_of(values: pa.Table, merged: pa.Table) -> pa.ChunkedArray:
    """Return the train counts of values from merged counts; 0 for absent values."""
    return _counts_in(values, _valid_counts(merged))


def _valid_counts(counts: pa.Table) -> pa.Table:
    """Return the counts of non-null values in canonical form."""
    if PACKED in counts.column_names:
        return without_null(counts)
    values = _plain(canonical(counts.column("value").combine_chunks()))
    counts = without_null(
        pa.table({"value": values, "count": counts.column("count").cast(pa.int64()).combine_chunks()})
    )
    if not pa.types.is_floating(values.type):
        return counts
    # 0.0 and -0.0 are one canonical value, possibly with two counts.
    return pl.DataFrame(counts).group_by("value").agg(pl.col("count").sum()).to_arrow()


def _vocabulary(op: Categorify, name: str, counts: pa.Table) -> pa.Table:
    if name in op.vocabs:
        kind = _plain(unpacked(counts.slice(0, 0)).column("value").combine_chunks()).type
        values = read_vocabulary(op.vocabs[name], name, kind)
        return pa.table({"value": values, "count": _counts_in(pa.table({"value": values}), counts)})
    if op.freq_threshold > 1:
        counts = counts.filter(pc.greater_equal(counts.column("count"), op.freq_threshold))
    ordered = in_order(counts)
    if op.max_size is not None:
        ordered = ordered.slice(0, op.max_size - FIRST - op.num_buckets)
    return pa.table({"value": _plain(ordered.column("value").combine_chunks()), "count": ordered.column("count")})


def _counts_in(vocabulary: pa.Table, counts: pa.Table) -> pa.ChunkedArray:
    values = pl.DataFrame(vocabulary.select(["value"]))
    right = pl.DataFrame(unpacked(counts)).with_columns(pl.col("value").cast(values.schema["value"]))
    joined = values.join(right, on="value", how="left", maintain_order="left")
    return pa.chunked_array([joined.get_column("count").fill_null(0).to_arrow()])


def _plain(values: pa.Array) -> pa.Array:
    kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    if pa.types.is_large_string(kind) or str(kind) == "string_view":
        kind = pa.string()
    return values if values.type == kind else values.cast(kind)


def _total(counts: pa.ChunkedArray) -> int:
    return int(pc.sum(counts).as_py() or 0)
