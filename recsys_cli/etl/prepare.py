"""One preparation from end to end: read and split, fit, transform and write, and say what came out."""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from recsys_cli.config import RunConfig, dump
from recsys_cli.data import RawTable, open_source
from recsys_cli.errors import DataError
from recsys_cli.etl.bad_rows import BadRow
from recsys_cli.etl.engine import Engine, choose
from recsys_cli.etl.read import Reader
from recsys_cli.etl.staging import Staged, stage
from recsys_cli.etl.summary import cold_shares
from recsys_cli.etl.write import ShardWriter, typed_table, write_table
from recsys_cli.events import Emit, Message, Progress
from recsys_cli.features.plan import FittedPlan
from recsys_cli.features.schema import Schema
from recsys_cli.features.split import SPLITS, FilesSplit


@dataclass
class Preparation:
    """One preparation of the data of a config.

    Attributes:
        config: What is wanted.
        raw: The folder of the downloaded dataset.
        scratch: An empty folder for what is not kept.
        folder: The artifact's folder, to be filled.
        emit: Told how far it is.
    """

    config: RunConfig
    raw: Path
    scratch: Path
    folder: Path
    emit: Emit

    def run(self) -> dict[str, Any]:
        """Fill the artifact's folder and return what its manifest says."""
        started = time.perf_counter()
        seconds: dict[str, float] = {}
        name, engine = choose(self.config.etl.engine)
        with _timed(seconds, "read and split"):
            staged, rejected = self._stage()
        with _timed(seconds, "fit"):
            fitted = engine.fit(self.config.features, staged)
        schema = self._schema(fitted, staged)
        with _timed(seconds, "transform and write"):
            quality = self._write(engine, fitted, staged, schema)
        if rejected:
            self._keep_rejected(rejected)
        return {
            "rows": staged.rows,
            "vocabularies": {column: table.num_rows for column, table in fitted.vocabularies.items()},
            "quality": quality,
            "cold": cold_shares(fitted, staged),
            "bad_rows": len(rejected),
            "engine": name,
            "seconds": seconds | {"total": round(time.perf_counter() - started, 3)},
            "peak_memory": peak_memory(),
        }

    def _stage(self) -> tuple[Staged, list[BadRow]]:
        raw_tables = {
            table.name: table
            for table in open_source(self.config.dataset.name, self.config.dataset.options).tables(self.raw)
        }
        plan = self.config.features
        wanted = {op.table: [op.on, *op.columns] for op in plan.joins}
        readers = {name: self._reader(raw_tables[name]) for name in wanted if name in raw_tables}
        interactions = self._interactions(raw_tables["interactions"])
        schemas = {name: self._reader(table).schema() for name, table in raw_tables.items()}
        schemas["interactions"] = next(iter(interactions.values())).schema()
        plan.check(schemas)
        for reader in interactions.values():
            reader.columns = plan.reads
        staged = stage(
            interactions,
            {name: reader.read() for name, reader in readers.items()},
            self.config,
            folder=self.scratch,
            emit=self.emit,
        )
        if not staged.rows["train"]:
            raise DataError("no rows to train on: the split leaves none, or the interactions are empty")
        return staged, [row for reader in (*interactions.values(), *readers.values()) for row in reader.rejected]

    def _reader(self, table: RawTable) -> Reader:
        return Reader(table, skip_bad=self.config.etl.on_bad_rows == "skip", threads=os.cpu_count() or 1)

    def _interactions(self, table: RawTable) -> dict[str, Reader]:
        if not isinstance(self.config.split, FilesSplit):
            return {"all": self._reader(table)}
        given = {}
        for split, path in self.config.split.paths().items():
            options = {"interactions": path}
            given[split] = self._reader(open_source("files", options).tables(Path())[0])
        return given

    def _schema(self, fitted: FittedPlan, staged: Staged) -> Schema:
        types = {field.name: field.type for field in staged.schema}
        for op in self.config.features.joins:
            joined = staged.tables[op.table].schema
            types |= {column: joined.field(column).type for column in op.columns}
        return self.config.features.prepared_schema(fitted.cardinalities, types, layout=self.config.etl.layout)

    def _write(self, engine: Engine, fitted: FittedPlan, staged: Staged, schema: Schema) -> dict[str, Any]:
        fitted.write(self.folder)
        schema.write(self.folder / "schema.json")
        (self.folder / "config.yaml").write_text(dump(self.config), encoding="utf-8")
        self._write_tables(engine, fitted, staged, schema)
        quality: dict[str, Any] = {}
        done, total = 0, sum(staged.rows.values())
        for split in SPLITS:
            writer = ShardWriter(self.folder / split, schema)

            def write(shard: int, table: pa.Table, writer: ShardWriter = writer, done: int = done) -> None:
                writer.write(shard, table)
                self.emit(Progress("transform", done + writer.rows, total))

            engine.transform(fitted, staged, split, layout=self.config.etl.layout, write=write)
            done += writer.rows
            quality[split] = {column: dict(counts) for column, counts in writer.missing.items()}
        return quality

    def _write_tables(self, engine: Engine, fitted: FittedPlan, staged: Staged, schema: Schema) -> None:
        """Write the joined columns by id, in the flat layout too: evaluation and serving need an item's features."""
        star = schema.model_copy(
            update={
                "columns": tuple(
                    column.model_copy(update={"table": join.on})
                    if (join := fitted.plan.join_of(column.name))
                    else column
                    for column in schema.columns
                )
            }
        )
        for key, table in engine.tables(fitted, staged).items():
            write_table(typed_table(table, star.in_table(key)), self.folder / "tables" / f"{key}.parquet")

    def _keep_rejected(self, rejected: list[BadRow]) -> None:
        lines = [
            {"file": str(r.file), "line": r.line, "column": r.column, "reason": r.reason, "text": r.text}
            for r in rejected
        ]
        (self.folder / "rejected.jsonl").write_text(
            "".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8"
        )
        self.emit(
            Message(f"left out {len(rejected)} bad rows; they are in rejected.jsonl of the prepared data", "warning")
        )


@contextmanager
def _timed(seconds: dict[str, float], what: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    seconds[what] = round(time.perf_counter() - started, 3)


def peak_memory() -> int:
    """Return the largest resident size that this process has had, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
