"""The engine on Polars: counts are one lazy query over the scratch files; shards are encoded by a few threads at a time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import polars as pl
import pyarrow as pa

from recsys_cli.errors import MissingExtraError
from recsys_cli.etl.engine import Write
from recsys_cli.etl.polars_engine.categorify import Encoder, count_joined, count_values, encode, vocabulary
from recsys_cli.etl.polars_engine.join_external import by_id
from recsys_cli.etl.polars_engine.lambda_op import compute
from recsys_cli.etl.staging import Staged
from recsys_cli.features.plan import FeaturePlan, FittedPlan

_THREADS = 2
"""Shards in work at the same time: enough to overlap encoding with writing, few enough to keep memory low."""


class PolarsEngine:
    """Polars on the CPU."""

    @classmethod
    def missing(cls) -> MissingExtraError | None:
        """Return None: Polars comes with the core install."""
        return None

    @classmethod
    def rank(cls) -> int:
        """Return its place beside the others: first without a GPU."""
        return 10

    def fit(self, plan: FeaturePlan, staged: Staged) -> FittedPlan:
        """Learn the vocabularies from the train split."""
        frame = _scan_train(staged)
        for op in plan.lambdas:
            frame = compute(op, frame)
        own = [column for column in plan.categorified if plan.join_of(column) is None]
        counts = {column: count_values(frame, column, rows=staged.rows["train"]) for column in own}
        for join in plan.joins:
            for column in set(join.columns) & set(plan.categorified):
                counts[column] = count_joined(counts[join.on], join, staged.tables[join.table], column)
        return FittedPlan(plan, {column: vocabulary(counts[column]) for column in plan.categorified})

    def tables(self, fitted: FittedPlan, staged: Staged) -> dict[str, pa.Table]:
        """Return the joined columns by encoded id."""
        encoders = {name: Encoder(table) for name, table in fitted.vocabularies.items()}
        made: dict[str, pa.Table] = {}
        for op in fitted.plan.joins:
            joined = by_id(op, staged.tables[op.table], fitted.vocabularies[op.on])
            for column in op.columns:
                if column in encoders:
                    position = joined.column_names.index(column)
                    joined = joined.set_column(position, column, encode(joined.column(column), encoders[column]))
            before = made.get(op.on)
            made[op.on] = joined if before is None else pa.table({**_columns(before), **_columns(joined)})
        return made

    def transform(self, fitted: FittedPlan, staged: Staged, split: str, *, layout: str, write: Write) -> None:
        """Prepare each shard of a split."""
        encoders = {name: Encoder(table) for name, table in fitted.vocabularies.items()}
        tables = self.tables(fitted, staged) if layout == "flat" else {}

        def prepare(shard: int) -> None:
            table = staged.read(split, shard)
            for op in fitted.plan.lambdas:
                table = compute(op, pl.LazyFrame(table)).collect().to_arrow()
            for column in fitted.plan.categorified:
                if column in table.column_names:
                    position = table.column_names.index(column)
                    table = table.set_column(position, column, encode(table.column(column), encoders[column]))
            for key, features in tables.items():
                rows = features.take(table.column(key))
                table = pa.table({**_columns(table), **_columns(rows)})
            write(shard, table)

        with ThreadPoolExecutor(_THREADS, thread_name_prefix="transform") as pool:
            for done in [pool.submit(prepare, shard) for shard in range(len(staged.shards[split]))]:
                done.result()


def _scan_train(staged: Staged) -> pl.LazyFrame:
    if not staged.shards["train"]:
        return pl.LazyFrame(staged.schema.empty_table())
    return pl.scan_ipc(staged.shards["train"])


def _columns(table: pa.Table) -> dict[str, pa.ChunkedArray]:
    return {name: table.column(name) for name in table.column_names}
