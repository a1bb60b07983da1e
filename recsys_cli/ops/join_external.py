"""Columns of another table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from recsys_cli.errors import ConfigError, DataError
from recsys_cli.features.schema import FIRST
from recsys_cli.features.spec import Spec
from recsys_cli.ops.op import Op
from recsys_cli.ops.values import canonical
from recsys_cli.packages import pa, pc, pl


class JoinExternal(Op):
    """Join columns of another table of the dataset to the interactions by a key, many to one.

    In the star layout the joined columns are stored once per key: a row for each id, then a row for each key of the table
    that is absent from train. A cold key thus shares its id and embedding, but has its own features, in both layouts and
    in new rows.
    Nulls: a left join; keys absent from the table give nulls, or an empty list.
    Fitted: nothing. Ops on joined columns are fitted over the train interactions.
    Output: the columns of the table, unchanged, in the order of the interactions. Duplicate keys in the table are an error.
    """

    op: Literal["JoinExternal"] = "JoinExternal"
    table: str
    """Name of the table; `recsys ls datasets` lists them."""
    on: str
    """Key column of the interactions and of the table; a later op has to categorify it."""
    columns: tuple[str, ...] = Field(min_length=1)
    """Columns of the table to join."""

    @property
    def reads(self) -> tuple[str, ...]:
        """The key; the columns belong to the table."""
        return (self.on,)

    @property
    def joined_by(self) -> str:
        """The key."""
        return self.on

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Return the columns of the table."""
        return {name: inputs[name] for name in self.columns}

    def rows_by_id(self, table: pa.Table, keys: pa.Table) -> pa.Table:
        """Return the joined columns by id: one lookup per id instead of one per interaction.

        Row i belongs to id i of the vocabulary `keys`; rows of the special ids are null.

        Raises:
            ConfigError: The key has another type in the interactions.
            DataError: The table has a duplicate key.
        """
        key_type = keys.schema.field("value").type
        ids = pl.DataFrame(pl.from_arrow(keys.select(["value"]))).rename({"value": self.on})
        nothing = pl.DataFrame({self.on: [None] * FIRST}, schema=ids.schema)
        by_key = pl.DataFrame(keyed(self, table, key_type))
        joined = pl.concat([nothing, ids]).join(by_key, on=self.on, how="left", maintain_order="left")
        return joined.select(self.columns).to_arrow()


def keyed(op: JoinExternal, table: pa.Table, key_type: pa.DataType) -> pa.Table:
    """Return the key, in the type of the interactions, and the joined columns, without rows of a null key."""
    try:
        keys = canonical(table.column(op.on).cast(key_type))
    except pa.ArrowInvalid as error:
        raise ConfigError(
            f"JoinExternal: {op.on} is {key_type} in the interactions and {table.schema.field(op.on).type} in {op.table}",
            hint="convert the key to the same type in both tables",
        ) from error
    has_key = keys.is_valid()
    keys = keys.filter(has_key)
    counts = pc.value_counts(keys)
    duplicates = counts.field(0).filter(pc.greater(counts.field(1), 1)).sort()
    if len(duplicates):
        shown = ", ".join(map(str, duplicates[:10].to_pylist()))
        raise DataError(
            f"JoinExternal: {len(duplicates)} duplicate keys in {op.table}.{op.on}: {shown}",
            hint="keep one row per key",
        )
    columns = {name: table.column(name).filter(has_key) for name in op.columns}
    return pa.table({op.on: keys, **columns})
