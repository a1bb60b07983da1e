"""Counting the train split: each column is a dataset of its own, of the values that are there, a partition per shard."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.errors import DataError
from recsys_cli.etl.join_keys import keyed
from recsys_cli.etl.nvtabular_engine import categorify, join_external
from recsys_cli.etl.nvtabular_engine.lambda_op import compute
from recsys_cli.etl.nvtabular_engine.plain import element_type, elements, plain, plain_type, raw_type
from recsys_cli.etl.staging import Staged
from recsys_cli.features.ops import JoinExternal
from recsys_cli.features.plan import FeaturePlan

SPLIT = "train"


@dataclass(frozen=True)
class Train:
    """The train split, and what is to be counted in it.

    Attributes:
        plan: The plan.
        staged: The interactions and the tables.
        folder: Where the counts are written.
    """

    plan: FeaturePlan
    staged: Staged
    folder: Path

    def vocabulary(self, column: str) -> pa.Table:
        """Count a column's values and order them.

        Raises:
            DataError: The key of a join is not unique, or values were lost in counting.
        """
        op = self.plan.join_of(column)
        load, graph = self._own(column) if op is None else self._joined(op, column)
        sizes = [len(next(iter(load(shard).values()))) for shard in range(len(self.staged.shards[SPLIT]))]
        shards = [shard for shard, size in enumerate(sizes) if size]
        kind = element_type(self._type(column))
        if not shards:
            nothing = {"value": pa.array([], plain_type(kind, column)), "count": pa.array([], pa.int64())}
            return categorify.vocabulary(pa.table(nothing), kind, column)
        folder = self.folder / str(self.plan.categorified.index(column))
        counts = categorify.count(load, shards, graph, folder=folder)
        if op is None and (total := pc.sum(counts.column("count")).as_py()) != sum(sizes):
            raise DataError(
                f"counting {column} gave {total} values instead of {sum(sizes)}", hint="use etl.engine=polars"
            )
        return categorify.vocabulary(counts, kind, column)

    def _own(self, column: str) -> tuple[categorify.Load, Any]:
        def load(shard: int) -> dict[str, pa.Array]:
            return {categorify.VALUE: plain(elements(self._read(column, shard))[0], column).known}

        return load, [categorify.VALUE]

    def _joined(self, op: JoinExternal, column: str) -> tuple[categorify.Load, Any]:
        table = keyed(op, self.staged.tables[op.table], raw_type(self._type(op.on)))
        brought = join_external.pairs(table, op, column)
        wanted = brought[join_external.KEY].unique()

        def load(shard: int) -> dict[str, pa.Array]:
            keys = plain(elements(self._read(op.on, shard))[0], op.on).known
            return {join_external.KEY: keys.filter(pc.is_in(keys, value_set=wanted))}

        return load, join_external.joined_values(brought)

    def _type(self, column: str) -> pa.DataType:
        """Return the raw type of a column, or that of the op which computes or brings it."""
        if (op := self.plan.join_of(column)) is not None:
            return self.staged.tables[op.table].schema.field(column).type
        computed = [op.dtype for op in self.plan.lambdas if op.output == column]
        return pa.type_for_alias(computed[-1]) if computed else self.staged.schema.field(column).type

    def _read(self, column: str, shard: int) -> pa.ChunkedArray:
        """Return a column of a shard, in any order of rows."""
        path = str(self.staged.shards[SPLIT][shard])
        if any(op.output == column for op in self.plan.lambdas):
            with pa.memory_map(path) as file:
                table = pa.ipc.open_file(file).read_all()
            for op in self.plan.lambdas:
                table = compute(op, table)
            return table.column(column)
        only = pa.ipc.IpcReadOptions(included_fields=[self.staged.schema.get_field_index(column)])
        with pa.memory_map(path) as file:
            return pa.ipc.open_file(file, options=only).read_all().column(column)
