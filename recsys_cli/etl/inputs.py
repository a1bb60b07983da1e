"""The raw tables of a preparation, each with a reader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pyarrow as pa

from recsys_cli.config import RunConfig
from recsys_cli.cpu import cores
from recsys_cli.data import RawTable, open_given, open_source
from recsys_cli.errors import ConfigError, DataError, listed
from recsys_cli.etl.reading.dialect import BadRow
from recsys_cli.etl.reading.reader import Reader, chunk_bytes
from recsys_cli.etl.reading.rows import refuse_mixed_times
from recsys_cli.etl.reading.text import NOTHING
from recsys_cli.etl.reading.times import DETECT, described
from recsys_cli.features.schema import TICKS
from recsys_cli.features.split import SPLITS, TRAIN, FilesSplit
from recsys_cli.ops.program import INTERACTIONS, Program

_KEEP = " (to keep the raw numbers, set times: {{{name}: s}} next to the files of the table)"


@dataclass(frozen=True)
class Inputs:
    """The raw tables of a config.

    Attributes:
        interactions: The reader of the interactions under "all", or one per split of a files split.
        schema: Names and types of the columns of the plan in the interactions.
    """

    program: Program
    interactions: Mapping[str, Reader]
    joined: Mapping[str, Reader]
    schema: pa.Schema

    @classmethod
    def of(cls, config: RunConfig, raw: Path, *, limit: int | None = None) -> Inputs:
        """Open the raw tables and compile the plan, with types by a sample of the first rows.

        Args:
            config: The config.
            raw: Folder of the downloaded dataset.
            limit: Number of interactions to read from the start; None for all.

        Raises:
            ConfigError: The plan does not fit the tables.
            DataError: A table is not readable, or has no rows.
        """
        source = open_source(config.dataset.name, config.dataset.options)
        tables = {table.name: table for table in source.tables(raw)}
        interactions = _interactions(config, tables, raw)
        first, *others = interactions.values()
        for reader in others:
            reader.times = {**reader.times, **first.known_times}
        readers = {name: _reader(config, table) for name, table in tables.items()}
        ids = config.features.raw_ids
        for reader in interactions.values():
            reader.ids = ids
        schema = first.schema()
        if first.is_empty():
            more = f" and {len(first.table.files) - 1} more files have" if len(first.table.files) > 1 else " has"
            raise DataError(
                f"{first.table.files[0]}{more} columns ({listed(schema.names)}) and no rows",
                hint="set dataset.interactions to a file with interactions, or write this one again",
            )
        program = config.features.compile(
            {name: reader.schema() for name, reader in readers.items()} | {INTERACTIONS: schema}
        )
        for reader in interactions.values():
            reader.columns, reader.limit = program.reads, limit
        for earlier, later in pairwise(interactions.values()):  # the history of a user goes on in the next file
            if later.table.order is not None:
                later.first = earlier.first + earlier.count()
        for reader in others:
            for field in reader.schema():
                target, where = schema.field(field.name), str(reader.table.files[0])
                refuse_mixed_times(field.type, target, where=where, typed_by=str(first.table.files[0]))
        joined = {op.table: readers[op.table] for _, op in program.joins}
        for name, reader in joined.items():
            of_table = [op for _, op in program.joins if op.table == name]
            reader.columns = tuple(dict.fromkeys(column for op in of_table for column in (op.on, *op.columns)))
            reader.ids = tuple(op.on for op in of_table)
        return cls(program, interactions, joined, pa.schema([schema.field(name) for name in program.reads]))

    @property
    def remarks(self) -> list[str]:
        """Messages about time columns with a conversion."""
        times = next(iter(self.interactions.values())).known_times
        return [
            f"{name} is read as {described(how)}{_KEEP.format(name=name) if how in TICKS else ''}"
            for name, how in times.items()
            if how != "s"
        ]

    @property
    def rejected(self) -> list[BadRow]:
        """The skipped bad rows so far."""
        return [row for reader in (*self.interactions.values(), *self.joined.values()) for row in reader.rejected]


def _interactions(config: RunConfig, tables: Mapping[str, RawTable], raw: Path) -> dict[str, Reader]:
    times = dict.fromkeys(config.features.raw_times, DETECT)
    if not isinstance(config.split, FilesSplit):
        return {"all": _reader(config, tables[INTERACTIONS], times)}
    dataset = config.dataset
    if not config.split.paths():
        own = {SPLITS[TRAIN]: tables[INTERACTIONS]} | {name: tables[name] for name in SPLITS[1:] if name in tables}
        if len(own) == 1:
            raise ConfigError(
                f"the dataset {dataset.name} has no splits of its own",
                hint="set split.train, split.valid and split.test to files",
            )
        return {split: _reader(config, table, times) for split, table in own.items()}
    given = {split: open_given(dataset.name, dataset.options, path) for split, path in config.split.paths().items()}
    return {split: _reader(config, source.tables(raw)[0], times) for split, source in given.items()}


def _reader(config: RunConfig, table: RawTable, times: Mapping[str, str] = NOTHING) -> Reader:
    threads = cores()
    size = chunk_bytes(config.etl.memory_mib, threads)
    return Reader(table, skip_bad=config.etl.on_bad_rows == "skip", threads=threads, chunk_bytes=size, times=times)
