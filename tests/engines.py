"""Sending data through an engine by hand, for tests that hold for every engine: which there are, and what they make."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsys_cli.cpu import Threads
from recsys_cli.etl.engine import Engine
from recsys_cli.etl.fit import Tables, fit
from recsys_cli.etl.staging import Staged
from recsys_cli.etl.transform import Transform, flattened, transform, typed_table
from recsys_cli.events import Emit, ignore
from recsys_cli.features.split import SPLITS
from recsys_cli.ops import JoinGroupby
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.ops.plan import FeaturePlan
from recsys_cli.ops.scratch import PartitionedFile
from recsys_cli.registry import ENGINES, load
from tests.row_engine import RowEngine
from tests.strategies import Case

NAN = float("nan")
LAYOUTS = ("star", "flat")
ENCODER = "encoder"
"""Name of the encoder of single rows among the engines."""


PARTICIPANTS = (*ENGINES, ENCODER)
"""The engines, and the encoder of single rows."""
needs_all = pytest.mark.numpy1


def _param(name: str) -> Any:
    return pytest.param(name, marks=[needs_all] if name == "nvtabular" else [])


every_engine = pytest.mark.parametrize("name", [_param(name) for name in ENGINES])
every_participant = pytest.mark.parametrize("name", [_param(name) for name in PARTICIPANTS])


def engine_of(name: str, folder: Path, *, device: str = "cpu", emit: Emit = ignore) -> Engine:
    """Return an engine by name, or the encoder of single rows as one."""
    kind: type[Engine] = RowEngine if name == ENCODER else load(ENGINES[name])
    return kind(folder, device=device, emit=emit)


@dataclass(frozen=True)
class Answer:
    """What an engine makes of a case, in the types that are written.

    Attributes:
        fitted: The fitted plan.
        tables: Joined columns by key.
        shards: Prepared rows by (layout, split, shard).
    """

    fitted: FittedPlan
    tables: dict[str, pa.Table]
    shards: dict[tuple[str, str, int], pa.Table]

    def column(self, name: str, split: str = "train", *, layout: str = "star") -> list[Any]:
        """Return a prepared column over all shards of a split."""
        shards = [table for key, table in sorted(self.shards.items()) if key[:2] == (layout, split)]
        return [value for table in shards for value in table.column(name).to_pylist()]

    def vocabulary(self, name: str) -> dict[Any, int]:
        """Return a vocabulary's counts by value, in order."""
        table = self.fitted.vocabularies[name]
        assert table.column_names == ["value", "count"]
        assert table.schema.field("count").type == pa.int64()
        return dict(zip(table["value"].to_pylist(), table["count"].to_pylist(), strict=True))

    def files(self) -> dict[str, tuple[str, str]]:
        """Return everything as comparable text: types, and values with NaN and -0.0 as they are."""
        found: dict[str, pa.Table] = {f"vocab/{name}": table for name, table in self.fitted.vocabularies.items()}
        found |= {f"tables/{name}": table for name, table in self.tables.items()}
        found |= {"/".join(map(str, key)): table for key, table in sorted(self.shards.items())}
        return {name: (repr(table.schema), repr(table.to_pydict())) for name, table in found.items()}


def assert_close(one: Answer, other: Answer) -> None:
    """Check that two engines made the same: to the bit, but for floats, which may differ by 1e-6 of their size."""
    assert list(one.shards) == list(other.shards)
    for name, vocabulary in one.fitted.vocabularies.items():
        assert vocabulary.equals(other.fitted.vocabularies[name]), name
    pairs = [(one.shards[key], other.shards[key]) for key in one.shards]
    pairs += [(one.tables[key], other.tables[key]) for key in one.tables]
    for here, there in pairs:
        assert here.schema == there.schema
        for column in here.schema:
            values, others = here.column(column.name).to_pylist(), there.column(column.name).to_pylist()
            exact = not pa.types.is_floating(column.type)
            expected: Any = others if exact else pytest.approx(others, rel=1e-6, abs=1e-6, nan_ok=True)
            assert values == expected, column.name


def stage_by_hand(case: Case, folder: Path, *, shards: int = 2) -> Staged:
    """Write what staging would, with the rows of train in the order given, cut into about so many shards."""
    folder.mkdir(parents=True, exist_ok=True)
    schema = case.splits["train"].schema
    train = case.splits["train"].num_rows
    size = -(-train // shards) or 1
    cuts = [min(train, size * shard) for shard in range(shards + 1)]
    held_out = [case.splits[split].num_rows if split in case.splits else 0 for split in SPLITS[1:]]
    starts = np.array([*cuts, *np.cumsum(held_out) + train], dtype=np.int64)
    with pa.ipc.new_file(str(folder / "batch.arrow"), schema) as file:
        together = pa.concat_tables([case.splits[split] for split in SPLITS if split in case.splits])
        columns = [pa.concat_arrays([pa.array([], c.type), *c.chunks]) for c in together.columns]
        dealt = pa.RecordBatch.from_arrays(columns, schema=schema)
        for start, end in itertools.pairwise(starts.tolist()):
            file.write_batch(dealt.slice(start, end - start))
    rows = dict(zip(SPLITS, [train, *held_out], strict=True))
    files = (PartitionedFile(folder / "batch.arrow", starts),)
    return Staged(files, rows, shards, max(1, -(-max(held_out) // shards)), case.tables, schema, seed=7)


def answer(name: str, case: Case, folder: Path, *, device: str = "cpu", emit: Emit = ignore) -> Answer:
    """Send a case through an engine."""
    staged = stage_by_hand(case, folder)
    engine = engine_of(name, folder, device=device, emit=emit)
    executor = Threads(engine.threads)
    fitted = fit(case.plan, staged, engine, executor, ignore, scratch=folder)
    raw = dict(Tables(engine, staged, fitted.program, fitted, fitted.program.passes).final())
    tables = {key: typed_table(table, fitted.schema("star").in_table(key)) for key, table in raw.items()}
    shards: dict[tuple[str, str, int], pa.Table] = {}
    for layout in LAYOUTS:
        applied = flattened(fitted, raw) if layout == "flat" else fitted
        for split in SPLITS:
            task = Transform(engine, applied, staged, fitted.schema(layout), split, folder / layout / split)
            transform(task, executor, ignore, done=0, total=0)
            for path in sorted((folder / layout / split).glob("*.parquet")):
                shards[layout, split, int(path.stem)] = pq.read_table(path)
    return Answer(fitted, tables, shards)


def interactions(columns: Mapping[str, Any]) -> pa.Table:
    """Return a table of interactions; an array has its own type."""
    return pa.table(dict(columns))


def plan(
    *ops: Any,
    user: str = "user",
    item: str = "item",
    label: str | tuple[str, ...] = "rating",
    timestamp: str | None = None,
) -> FeaturePlan:
    """Return a plan of ops; statistics of the label are allowed."""
    groups = [op for op in ops if isinstance(op, JoinGroupby)]
    known = tuple(name for op in groups for group in op.columns for name in op.written(group).values())
    return FeaturePlan(user=user, item=item, label=label, timestamp=timestamp, ops=ops, known=known)
