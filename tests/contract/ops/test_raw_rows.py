"""Raw rows as a request has them, encoded by a fitted plan: equal to the transform of the same rows, in all and one by one."""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from recsys_cli.cpu import Threads
from recsys_cli.etl.fit import Tables, fit
from recsys_cli.etl.polars_engine import PolarsEngine
from recsys_cli.etl.transform import flattened, prepare
from recsys_cli.events import ignore
from recsys_cli.features.schema import Schema
from recsys_cli.ops import (
    Bucketize,
    Categorify,
    FillMissing,
    HashBucket,
    HashedCross,
    JoinGroupby,
    LambdaOp,
    ListSlice,
    Rename,
    TargetEncoding,
)
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.serving.encoder import Lists, RowEncoder
from tests.contract.ops.numeric_cases import assert_same, numbers_case
from tests.contract.ops.test_numeric_chains import chains
from tests.contract.ops.test_target_encoding import random_cases
from tests.engines import plan, stage_by_hand
from tests.strategies import Case, cases

few = settings(max_examples=40, derandomize=True, phases=[Phase.explicit, Phase.generate])


def fitted_on(case: Case, engine: PolarsEngine, folder: Path) -> tuple[FittedPlan, FittedPlan]:
    """Return the fitted plan of a case, and the same with the tables by id."""
    staged = stage_by_hand(case, folder)
    fitted = fit(case.plan, staged, engine, Threads(None), ignore, scratch=folder)
    raw = dict(Tables(engine, staged, fitted.program, fitted, fitted.program.passes).final())
    return fitted, flattened(fitted, raw)


def check(case: Case) -> int:
    """Compare all rows of a case in both layouts; return the number of values."""
    compared = 0
    with tempfile.TemporaryDirectory() as folder:
        engine = PolarsEngine(Path(folder))
        star, flat = fitted_on(case, engine, Path(folder) / "staged")
        for fitted, layout in ((star, "star"), (flat, "flat")):
            schema = fitted.schema(layout)
            encoder = RowEncoder(fitted, schema)
            for rows in case.splits.values():
                compared += _compare(encoder, rows, prepare(engine, fitted, as_read(rows, fitted), schema), schema)
    return compared


def as_read(rows: pa.Table, fitted: FittedPlan) -> pa.Table:
    """Return rows with null for empty ids, as a reader of files does."""
    for at, name in enumerate(rows.column_names):
        if name in fitted.plan.raw_ids and pa.types.is_string(rows.column(name).type):
            rows = rows.set_column(at, name, pc.if_else(pc.equal(rows[name], ""), None, rows[name]))
    return rows


def least(case: Case) -> int:
    """Return the number of values if each row has those of a user, an item and a label, in both layouts."""
    return 2 * 3 * sum(rows.num_rows for rows in case.splits.values())


def _compare(encoder: RowEncoder, rows: pa.Table, expected: pa.Table, schema: Schema) -> int:
    columns = {name: values(rows.column(name)) for name in encoder.inputs}
    arrays = encoder.arrays(columns)
    together = shown(arrays)
    assert [name for name in together if name in schema.names] == [column.name for column in encoder.columns]
    for column in encoder.columns:
        prepared = expected.column(column.name).to_pylist()
        if column.dtype.startswith("float"):
            assert_same(in_rows(arrays[column.name]), prepared, what=column.name)
        else:
            assert together[column.name] == list(map(repr, prepared)), column.name
    for row in range(rows.num_rows):
        alone = shown(encoder.arrays({name: [column[row]] for name, column in columns.items()}))
        assert alone == {name: [texts[row]] for name, texts in together.items()}
    return rows.num_rows * len(encoder.columns)


def values(column: pa.ChunkedArray) -> list[Any]:
    """Return Python values; times as numbers, because Python's datetimes end in the year 9999."""
    return (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()


def shown(encoded: dict[str, Any]) -> dict[str, list[str]]:
    return {name: list(map(repr, in_rows(column))) for name, column in encoded.items()}


def in_rows(column: Any) -> list[Any]:
    if not isinstance(column, Lists):
        return column.tolist()
    return [column.values[start:stop].tolist() for start, stop in pairwise(column.offsets)]


@few
@given(cases(), st.sampled_from([{}, {"num_buckets": 3}, {"freq_threshold": 2, "num_buckets": 2}, {"max_size": 4}]))
def test_ids_expressions_and_joins(case: Case, options: dict[str, Any]) -> None:
    join, _, label = case.plan.ops
    assert isinstance(label, LambdaOp)
    computed = label.model_copy(update={"output": "computed"})
    ops = (
        join, computed, HashedCross(columns=("item", "count"), num_buckets=7), Bucketize(columns=("count",), boundaries=(0, 2)),
        Categorify(columns=("user", "item", "tags", "genres", "year"), **options), ListSlice(columns=("tags",), start=-2),
        HashBucket(columns=("text",), num_buckets=5), LambdaOp(expression="1", output="label", dtype="int8"),
    )  # fmt: skip
    assert check(Case(case.splits, case.tables, case.plan.model_copy(update={"ops": ops}))) >= least(case)


@few
@given(chains())
def test_chains_of_numbers(case: Case) -> None:
    assert check(case) >= least(case)


@few
@given(random_cases())
def test_statistics_of_groups(case: Case) -> None:
    groups = JoinGroupby(
        columns=("user", ("item", "day")), cont_cols=("rating",), stats=("count", "mean", "std", "max")
    )
    case = Case(case.splits, case.tables, plan(groups, *case.plan.ops, label=case.plan.label))
    assert check(case) >= least(case)


@pytest.mark.parametrize("kind", [pa.int32(), pa.string(), pa.float64(), pa.bool_(), pa.uint64(), pa.timestamp("ms")])
def test_every_type_of_values(kind: pa.DataType) -> None:
    raw = [0, 1, 1, None, 0, 1]
    x = (
        pa.array([None if one is None else str(one) for one in raw])
        if kind == pa.string()
        else pa.array(raw, pa.int64()).cast(kind)
    )
    ops = (
        Rename(columns={"x": "y"}), HashBucket(columns=("y",), num_buckets=9), LambdaOp(expression="y", output="z"),
        TargetEncoding(columns=("y",), target="rating"), FillMissing(columns=("n",), add_binary_cols=True),
    )  # fmt: skip
    assert check(numbers_case({"x": x, "n": [1, None, 2, None, 3, 4]}, *ops)) > 0
    assert check(numbers_case({"x": x}, Categorify(columns=("x",), num_buckets=2), valid={"x": x.slice(2)})) > 0
