"""The engine on NVTabular 23.08: real workflows, one shard at a time, around which inputs and order are made exact."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa

from recsys_cli.errors import MissingExtraError
from recsys_cli.etl.engine import Write
from recsys_cli.etl.join_keys import keyed
from recsys_cli.etl.nvtabular_engine import join_external, pins
from recsys_cli.etl.nvtabular_engine.categorify import Encoder
from recsys_cli.etl.nvtabular_engine.frames import forget
from recsys_cli.etl.nvtabular_engine.lambda_op import compute
from recsys_cli.etl.nvtabular_engine.train import Train
from recsys_cli.etl.staging import Staged
from recsys_cli.features.plan import FeaturePlan, FittedPlan


class NVTabularEngine:
    """NVTabular, as users of Merlin know it: pandas on a CPU, cuDF on a GPU.

    One workflow does not do: ties, nulls and keys without a match have to be settled between its ops. So each op is a
    workflow of its own, and what goes in has no nulls, no lists but those of ids, and none of the user's column names.
    """

    @classmethod
    def missing(cls) -> MissingExtraError | None:
        """Return which package is missing or of the wrong release, or None; decided without importing NVTabular."""
        return pins.problem()

    @classmethod
    def rank(cls) -> int:
        """Return its place beside the others: first on a GPU with cuDF, last without."""
        return 20 if find_spec("cudf") is not None else 0

    def fit(self, plan: FeaturePlan, staged: Staged) -> FittedPlan:
        """Learn the vocabularies from the train split, one column at a time, which bounds the memory."""
        with _scratch(staged) as folder:
            train = Train(plan, staged, folder)
            return FittedPlan(plan, {column: train.vocabulary(column) for column in plan.categorified})

    def tables(self, fitted: FittedPlan, staged: Staged) -> dict[str, pa.Table]:
        """Return the joined columns by encoded id."""
        with _scratch(staged) as folder:
            return _tables(fitted, staged, Encoder(fitted.vocabularies, folder))

    def transform(self, fitted: FittedPlan, staged: Staged, split: str, *, layout: str, write: Write) -> None:
        """Prepare each shard of a split."""
        with _scratch(staged) as folder:
            encoder = Encoder(fitted.vocabularies, folder)
            flat = _tables(fitted, staged, encoder) if layout == "flat" else {}
            rows = {key: join_external.Rows(table) for key, table in flat.items()}
            for shard in range(len(staged.shards[split])):
                table = staged.read(split, shard)
                for op in fitted.plan.lambdas:
                    table = compute(op, table)
                table = encoder.columns(table)
                for key, joined in rows.items():
                    brought = joined(table.column(key).combine_chunks())
                    table = pa.table({**_columns(table), **_columns(brought)})
                write(shard, table)


def _tables(fitted: FittedPlan, staged: Staged, encoder: Encoder) -> dict[str, pa.Table]:
    made: dict[str, pa.Table] = {}
    for op in fitted.plan.joins:
        keys = fitted.vocabularies[op.on]
        table = keyed(op, staged.tables[op.table], keys.schema.field("value").type)
        joined = encoder.columns(join_external.by_id(op, table, keys))
        before = made.get(op.on)
        made[op.on] = joined if before is None else pa.table({**_columns(before), **_columns(joined)})
    return made


def _columns(table: pa.Table) -> dict[str, pa.ChunkedArray]:
    return {name: table.column(name) for name in table.column_names}


@contextmanager
def _scratch(staged: Staged) -> Iterator[Path]:
    """Give a folder beside the staged shards for what NVTabular writes, which else would go to the working directory."""
    beside = next((paths[0].parent for paths in staged.shards.values() if paths), None)
    with tempfile.TemporaryDirectory(dir=beside, prefix="nvtabular-") as folder:
        try:
            yield Path(folder)
        finally:
            forget()
