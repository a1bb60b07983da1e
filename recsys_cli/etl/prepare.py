"""The preparation of the data of a config, from raw tables to the artifact with its report."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from recsys_cli.config import RunConfig, dump
from recsys_cli.cpu import cores
from recsys_cli.data.raw_files import size_of
from recsys_cli.errors import ConfigError, DataError
from recsys_cli.etl.cold_values import cold_shares
from recsys_cli.etl.engine import Engine, Executor, check_ops, choose, open_executor
from recsys_cli.etl.filters import FilteredRows, Part, RowCount, choose_rows, refuse_lost, timed
from recsys_cli.etl.fit import Tables, fit, shared_ids
from recsys_cli.etl.read_parts import PartReader, PartRows
from recsys_cli.etl.reading.dialect import BadRow
from recsys_cli.etl.reading.reader import Inputs, Reader
from recsys_cli.etl.report import EtlCounts, write_report
from recsys_cli.etl.staging import Staged, sample_negatives, stage
from recsys_cli.etl.transform import Transform, flattened, transform, typed_table, write_table
from recsys_cli.events import Emit, Message
from recsys_cli.features.columns import SHARED_ID
from recsys_cli.features.hashing import can_hash
from recsys_cli.features.schema import file_of
from recsys_cli.features.split import SPLITS, TRAIN
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.ops.program import Program
from recsys_cli.ops.scratch import Rows

_BYTES = 25e6
"""Bytes of text that a core prepares in a second: 24 to 33 million for MovieLens-25M on two cores."""


@dataclass
class Preparation:
    """The preparation of the data of a config.

    Attributes:
        raw: The folder of the downloaded dataset.
        scratch: An empty scratch folder.
        folder: The folder of the artifact.
        limit: Number of interactions to read from the start; None for all.
        fitted: The fitted plan of other data, applied as it is; None to fit one.
    """

    config: RunConfig
    raw: Path
    scratch: Path
    folder: Path
    emit: Emit
    limit: int | None = None
    fitted: FittedPlan | None = None

    def run(self) -> dict[str, Any]:
        """Write the artifact and return the entries of its manifest."""
        started = time.perf_counter()
        seconds: dict[str, float] = {}
        config = self.config.etl
        name, engine = choose(config.engine, self.scratch, device=config.device, emit=self.emit)
        check_ops(engine, self.config.features.ops)
        inputs = Inputs.of(self.config, self.raw, limit=self.limit)
        estimate = _estimated_seconds(inputs) if config.cluster == "auto" else 0.0
        with open_executor(config, engine, self.scratch, self.emit, seconds=estimate) as executor:
            with _phase(seconds, "read and split"):
                for remark in (*inputs.remarks, *self.config.features.possible_leaks(inputs.program)):
                    self.emit(Message(remark))
                staged, chosen = self._stage(inputs, executor)
            with _phase(seconds, "fit"):
                fitted = self.fitted or fit(
                    self.config.features, staged, engine, executor, self.emit, scratch=self.scratch
                )
            with _phase(seconds, "transform and write"):
                quality = self._write(engine, executor, fitted, staged)
            with _phase(seconds, "cold values"):
                cold = cold_shares(self.folder, fitted, staged, executor)
            rejected = inputs.rejected
            with _phase(seconds, "report"):
                dataset, split, bad = self.config.dataset.called, self.config.split, len(rejected)
                counted = EtlCounts(dataset, split.method, staged.rows, quality, cold, bad, chosen, split.tie_seed)
                self._report(fitted, counted, executor)
        if rejected:
            self._keep_rejected(rejected)
        return {
            "rows": dict(staged.rows),
            "vocabularies": {name: fitted.vocabulary_of(name).num_rows for name in fitted.plan.categorified},
            "quality": quality,
            "cold": cold,
            "bad_rows": len(rejected),
            "chosen": {name: [asdict(count) for count in counts] for name, counts in chosen.items()},
            "engine": name,
            **executor.facts,
            "seconds": seconds | {"total": round(time.perf_counter() - started, 3)},
            "peak_memory": peak_memory(),
        }

    def _stage(self, inputs: Inputs, executor: Executor) -> tuple[Staged, dict[str, tuple[RowCount, ...]]]:
        program, plan = inputs.program, self.config.features
        time = plan.timestamp and plan.raw_name(plan.timestamp)
        chosen: dict[str, FilteredRows] = {}
        sources: dict[str, Rows] = {}
        for name, reader in inputs.interactions.items():
            chosen[name], sources[name] = self._read(program, name, reader, executor, time)
        estimates = [
            chosen[name].estimated_rows(reader.estimated_rows()) for name, reader in inputs.interactions.items()
        ]
        tables = {name: reader.read() for name, reader in inputs.joined.items()}
        rows = sum(estimates) * (1 + (program.draw.num_negatives if program.draw else 0))
        own = {name: rows for name, rows in sources.items() if not isinstance(rows, PartRows)}  # workers check theirs
        sources |= timed(own, inputs.interactions, time)
        staged = stage(
            sources, tables, self.config, estimated_rows=rows, folder=self.scratch, emit=self.emit, executor=executor
        )
        for part in chosen.values():
            part.report(self.emit)
            part.discard()
        staged = replace(staged, raw=inputs.schema)
        if program.draw is not None:
            staged = sample_negatives(program.draw, staged, self.scratch, self.emit)
        if not staged.rows[SPLITS[TRAIN]]:
            for part in chosen.values():
                part.check()
            raise DataError(
                "no rows to train on: the split leaves none, or the interactions are empty",
                hint="relax the filters in features.ops, or change the split",
            )
        return staged, {name: part.counts for name, part in chosen.items()}

    def _read(
        self, program: Program, name: str, reader: Reader, executor: Executor, time: str | None
    ) -> tuple[FilteredRows, Rows]:
        """Return the interactions after all filters, and where to read them: from files, or what workers read of these."""
        kind: Part = "held-out" if name in SPLITS and name != SPLITS[TRAIN] else "train"
        folder, memory = self.scratch / "rows" / name, self.config.etl.memory_mib
        labels = self.config.features.labels
        if executor.facts["cluster"] is not None:
            parts = PartReader(executor, program, folder, memory, labels, self.emit)
            if (read := parts.read(reader, kind, time)) is not None:
                return read
        rows = choose_rows(program, reader, folder, self.emit, part=kind, memory=memory, labels=labels)
        return rows, rows

    def _write(self, engine: Engine, executor: Executor, fitted: FittedPlan, staged: Staged) -> dict[str, Any]:
        schema = fitted.schema(self.config.etl.layout)
        fitted.write(self.folder)
        schema.write(self.folder / "schema.json")
        (self.folder / "config.yaml").write_text(dump(self.config), encoding="utf-8")
        tables = dict(Tables(engine, staged, fitted.program, fitted, fitted.program.passes).final())
        # In the flat layout as well: evaluation and serving need the features of an item.
        star = fitted.schema("star")
        for key, table in tables.items():
            typed = typed_table(table, star.in_table(key))
            if (cold := fitted.cold_keys(key)) is not None:
                columns = dict(zip(typed.column_names, typed.columns, strict=True))
                typed = pa.table(columns | {SHARED_ID: shared_ids(cold)})
            write_table(typed, self.folder / "tables" / file_of(key))
        if self.config.etl.layout == "flat":
            fitted = flattened(fitted, tables)
        quality: dict[str, Any] = {}
        done, total = 0, sum(staged.rows.values())
        for split in SPLITS:
            user = _users_without_id(fitted, staged, split)
            shown = None if split == SPLITS[TRAIN] else _impressions(fitted, staged)
            task = Transform(engine, fitted, staged, schema, split, self.folder / split, user=user, impression=shown)
            written = transform(task, executor, self.emit, done=done, total=total)
            refuse_lost(written.lost, split, schema)
            done += written.rows
            quality[split] = {column: dict(counts) for column, counts in written.missing.items()}
        return quality

    def _report(self, fitted: FittedPlan, counted: EtlCounts, executor: Executor) -> None:
        """Write the report; an error becomes a warning, because the data is complete without it."""
        try:
            write_report(self.folder, fitted, counted, executor)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            self.emit(
                Message(f"the data is prepared, but its report failed: {reason}; train goes on without it", "warning")
            )

    def _keep_rejected(self, rejected: list[BadRow]) -> None:
        lines = "".join(json.dumps(vars(row) | {"file": str(row.file)}) + "\n" for row in rejected)
        (self.folder / "rejected.jsonl").write_text(lines, encoding="utf-8")
        text = f"skipped {len(rejected)} bad rows; rejected.jsonl of the prepared data lists them"
        self.emit(Message(text, "warning"))


def _estimated_seconds(inputs: Inputs) -> float:
    """Estimate the duration on the cores of this machine, by the sizes of the files."""
    files = (size_of(file) or 0 for reader in inputs.interactions.values() for file in reader.table.files)
    return sum(files) / (_BYTES * cores())


def _users_without_id(fitted: FittedPlan, staged: Staged, split: str) -> str | None:
    """Return the raw user column if users of the split may lack an id and no op computes the column."""
    _, op = fitted.plan.encoder_of(fitted.plan.user)
    raw = fitted.plan.raw_name(fitted.plan.user)
    if raw not in staged.schema.names or not can_hash(staged.schema.field(raw).type):
        return None
    return raw if split != SPLITS[TRAIN] or op.leaves_out else None


def _impressions(fitted: FittedPlan, staged: Staged) -> str | None:
    """Return the staged column of impression ids; a `ConfigError` if an op replaced it, or for lists."""
    name = fitted.plan.impression
    raw = name and fitted.plan.raw_name(name)
    if raw and (raw not in staged.schema.names or not can_hash(staged.schema.field(raw).type)):
        raise ConfigError(
            f"features.impression: {name!r} is removed by an op, or holds no single values",
            hint="name a column of the interactions with one number or text in each row",
        )
    return raw


@contextmanager
def _phase(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Time a phase, and release what Arrow keeps: NumPy and Polars of the next phase have pools of their own."""
    started = time.perf_counter()
    yield
    pa.default_memory_pool().release_unused()
    seconds[name] = round(time.perf_counter() - started, 3)


def peak_memory() -> int:
    """Return the peak resident set size of this process, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
