"""`recsys validate`: a config against its files, by their first rows, before any work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.config import RunConfig
from recsys_cli.data import open_source
from recsys_cli.data.files import Files
from recsys_cli.errors import DataError
from recsys_cli.ops.program import INTERACTIONS
from recsys_cli.stages.keys import source_key
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
        memory: Upper bound of the preparation in bytes: the budget and the joined tables.
        skipped: Number of unreadable rows in the sample.
    """

    rows: int
    sampled: int
    columns: dict[str, str]
    nulls: dict[str, float]
    matched: dict[str, float]
    memory: int
    skipped: int = 0
    notes: list[str] = field(default_factory=list)


def validate(config: RunConfig, workspace: Workspace) -> Checked | None:
    """Check columns, types, join keys and nulls of a config's dataset; None if it is not downloaded.

    Raises:
        ConfigError: The features do not match the tables.
        DataError: A file is missing or unreadable, a key repeats in a joined table, or all sampled rows have one user or item.
    """
    with raw_tables(config, workspace) as raw:
        return None if raw is None else _checked(config, raw)


@dataclass(frozen=True)
class RawTables:
    """The folder of the raw tables, and the numbers of rows of those with their first rows only."""

    folder: Path
    totals: Mapping[str, int] = field(default_factory=dict)


@contextmanager
def raw_tables(config: RunConfig, workspace: Workspace) -> Iterator[RawTables | None]:
    """Yield the raw tables of a config; None if they are not downloaded.

    Tables of lakes and databases are sampled at their origin.
    """
    source = open_source(config.dataset.name, config.dataset.options)
    raw = workspace.raw(config.dataset.name)
    if source.info.is_own:
        yield RawTables(Path())
    elif raw.exists and raw.key == source_key(config.dataset.name, source, workspace):
        yield RawTables(raw.fetch().folder)
    elif isinstance(source, Files):
        with TemporaryDirectory(prefix="recsys-") as folder:
            yield RawTables(Path(folder), source.sample(Path(folder), SAMPLE_ROWS))
    else:
        yield None


def _checked(config: RunConfig, raw: RawTables) -> Checked:
    from recsys_cli.etl.reading.reader import Inputs  # loads Polars; configs alone need none
    from recsys_cli.ops.join_external import keyed

    inputs = Inputs.of(config, raw.folder)
    reader = next(iter(inputs.interactions.values()))
    rows, is_whole = reader.head(SAMPLE_ROWS)
    total = (
        rows.num_rows
        if is_whole and len(inputs.interactions) == 1
        else sum(one.estimated_rows() for one in inputs.interactions.values())
    )
    total = max(total, raw.totals.get(INTERACTIONS, 0))
    _refuse_one(config, rows)
    notes: list[str] = []
    matched: dict[str, float] = {}
    memory = config.etl.memory_mib << 20
    for _, op in inputs.program.joins:
        table = inputs.joined[op.table].read()
        memory += table.nbytes
        is_raw = op.on in rows.column_names
        keys = keyed(op, table, (rows if is_raw else table).column(op.on).type).column(op.on)
        if is_raw:
            matched[op.table] = _share(pc.is_in(rows.column(op.on), value_set=keys.combine_chunks()))
    nulls = {name: rows.column(name).null_count / max(1, rows.num_rows) for name in rows.column_names}
    notes += [f"{name}: {share:.0%} of the values are missing" for name, share in nulls.items() if share > _RARE]
    notes += [
        f"{name}: only {share:.0%} of the rows have a row in this table"
        for name, share in matched.items()
        if share < _RARE
    ]
    return Checked(
        rows=total,
        sampled=rows.num_rows,
        columns={column.name: str(column.type) for column in inputs.schema},
        nulls={name: share for name, share in nulls.items() if share},
        matched=matched,
        memory=memory,
        skipped=len(reader.rejected),
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
