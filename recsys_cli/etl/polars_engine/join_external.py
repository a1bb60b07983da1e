"""JoinExternal on Polars: one lookup per id instead of one per interaction."""

from __future__ import annotations

import polars as pl
import pyarrow as pa

from recsys_cli.etl.join_keys import keyed
from recsys_cli.features.schema import FIRST
from recsys_cli.ops import JoinExternal


def by_id(op: JoinExternal, table: pa.Table, keys: pa.Table) -> pa.Table:
    """See `Engine.join`."""
    key_type = keys.schema.field("value").type
    ids = pl.DataFrame(pl.from_arrow(keys.select(["value"]))).rename({"value": op.on})
    nothing = pl.DataFrame({op.on: [None] * FIRST}, schema=ids.schema)
    by_key = pl.DataFrame(keyed(op, table, key_type))
    joined = pl.concat([nothing, ids]).join(by_key, on=op.on, how="left", maintain_order="left")
    return joined.select(op.columns).to_arrow()
