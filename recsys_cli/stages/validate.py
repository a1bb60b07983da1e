"""`recsys validate`: a config against its files, by their first rows, before any work."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.config import RunConfig
from recsys_cli.data import open_source
from recsys_cli.errors import DataError
from recsys_cli.workspace import Workspace

SAMPLE_ROWS = 100_000
_RARE = 0.5
"""Share of null or unmatched keys worth a note."""


@dataclass(frozen=True)
class Checked:
    """What the first rows of a dataset show.

    Attributes:
        rows: Estimated number of interactions.
        sampled: Number of rows in the sample.
        columns: Types by column read.
        nulls: Shares of nulls by column with nulls.
        matched: By joined table, the share of the sample's rows with a row in it.
        memory: Expected peak of the preparation in bytes: the budget and the joined tables.
    """

    rows: int
    sampled: int
    columns: dict[str, str]
    nulls: dict[str, float]
    matched: dict[str, float]
    memory: int
    notes: list[str] = field(default_factory=list)


def validate(config: RunConfig, workspace: Workspace) -> Checked | None:
    """Check columns, types, join keys and nulls of a config's dataset; None if it is not downloaded.

    Raises:
        ConfigError: The features do not match the tables.
        DataError: A file is missing or unreadable, a key repeats in a joined table, or all sampled rows have one user or item.
    """
    raw = workspace.raw(config.dataset.name)
    if not (open_source(config.dataset.name, config.dataset.options).info.is_own or raw.exists):
        return None
    from recsys_cli.etl.inputs import Inputs  # loads Polars; configs alone need none

    inputs = Inputs.of(config, raw.folder if raw.exists else Path())
    reader = next(iter(inputs.interactions.values()))
    parts, count, is_whole = [inputs.schema.empty_table()], 0, len(inputs.interactions) == 1
    with closing(reader.batches()) as batches:
        for batch in batches:
            parts.append(batch)
            count += batch.num_rows
            if count >= SAMPLE_ROWS:
                is_whole = False
                break
    rows = pa.concat_tables(parts).slice(0, SAMPLE_ROWS)
    _refuse_one(config, rows)
    notes: list[str] = []
    matched: dict[str, float] = {}
    memory = config.etl.memory_mib << 20
    for _, op in inputs.program.joins:
        table = inputs.joined[op.table].read()
        memory += table.nbytes
        _refuse_repeated(table.column(op.on), op.table, op.on)
        if op.on in rows.column_names:
            matched[op.table] = _share(pc.is_in(rows.column(op.on), value_set=table.column(op.on).combine_chunks()))
    nulls = {name: rows.column(name).null_count / max(1, rows.num_rows) for name in rows.column_names}
    notes += [f"{name}: {share:.0%} of the values are missing" for name, share in nulls.items() if share > _RARE]
    notes += [
        f"{name}: only {share:.0%} of the rows have a row in this table"
        for name, share in matched.items()
        if share < _RARE
    ]
    return Checked(
        rows=count if is_whole else sum(one.estimated_rows() for one in inputs.interactions.values()),
        sampled=rows.num_rows,
        columns={column.name: str(column.type) for column in inputs.schema},
        nulls={name: share for name, share in nulls.items() if share},
        matched=matched,
        memory=memory,
        notes=notes,
    )


def _share(found: pa.ChunkedArray) -> float:
    return float(pc.mean(found).as_py() or 0.0)


def _refuse_one(config: RunConfig, rows: pa.Table) -> None:
    for role, column in (("user", config.features.user), ("item", config.features.item)):
        name = config.features.raw_source(column)
        if name in rows.column_names and rows.num_rows > 1 and pc.count_distinct(rows.column(name)).as_py() == 1:
            raise DataError(
                f"the first {rows.num_rows:,} rows have one {role}, {rows.column(name)[0].as_py()!r} in column {name}",
                hint=f"set features.{role} to another column, or add the rows of others",
            )


def _refuse_repeated(keys: pa.ChunkedArray, table: str, name: str) -> None:
    counts = pc.value_counts(keys.drop_null())
    repeated = counts.filter(pc.greater(counts.field("counts"), 1))
    if len(repeated):
        key = repeated[0]["values"].as_py()
        raise DataError(
            f"table {table!r}: {len(repeated):,} keys repeat in column {name}, such as {key!r}; a join needs one row per key",
            hint="keep one row per key, or remove the JoinExternal op",
        )
