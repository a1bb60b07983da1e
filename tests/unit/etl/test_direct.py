"""Categorify without a query: direct steps, and steps with dependencies."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from recsys_cli.etl.fit import row_numbers
from recsys_cli.etl.polars_engine import ArrowSteps
from recsys_cli.features.columns import ROW_WEIGHT
from recsys_cli.ops import Categorify, LambdaOp, Rename
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.ops.program import PlanStep
from recsys_cli.ops.vocabulary import unpacked

ROWS = pa.table({"a": ["x", "y", None, "x"], "tags": [["p"], None, [], ["q", None, "p"]], "n": [1, 2, 3, 4]})
ENCODE = Categorify(columns=("a",))
FITTED = cast(
    FittedPlan,
    SimpleNamespace(
        state={
            (9, name): pa.table({"value": known}) for name, known in {"a": ["x"], "tags": ["p", "q"], "n": [7]}.items()
        }
    ),
)


def step(op: Any, *writes: str) -> PlanStep:
    return PlanStep(9, op, None, 0, writes or tuple(getattr(op, "columns", ())))


def done(*steps: PlanStep, rows: pa.Table = ROWS) -> ArrowSteps:
    return ArrowSteps.of([(one, "apply") for one in steps], FITTED, rows)


def test_raw_columns_are_encoded_at_once_and_lists_by_element() -> None:
    direct = done(step(Categorify(columns=("a", "tags"))))

    assert direct.rest == []
    assert direct.rows["a"].to_pylist() == [3, 2, 1, 3]
    assert direct.rows["tags"].to_pylist() == [[3], [], [], [4, 1, 3]]
    assert direct.rows["n"].to_pylist() == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "before",
    [
        step(LambdaOp(expression="a == 'x'", output="is_x"), "is_x"),  # reads the text
        step(LambdaOp(expression="lower(a)", output="a"), "a"),  # writes another
        step(Rename(columns={"n": "a"}), "n", "a"),
    ],
)
def test_steps_wait_for_earlier_steps_on_the_same_columns(before: PlanStep) -> None:
    direct = done(before, step(ENCODE))

    assert [one.op for one, _ in direct.rest] == [before.op, ENCODE]
    assert direct.rows is ROWS


def test_independent_steps_do_not_wait() -> None:
    other = step(LambdaOp(expression="n + 1", output="m"), "m")

    direct = done(other, step(ENCODE))

    assert [one for one, _ in direct.rest] == [other]
    assert direct.rows["a"].type == pa.int32()
    assert direct.query_input.column_names == ["n"]


def test_weighted_rows_are_counted_by_a_query() -> None:
    learn = step(Categorify(columns=("a", "tags")))

    direct = ArrowSteps.of([(learn, "fit")], FITTED, ROWS)
    weighted = ArrowSteps.of([(learn, "fit")], FITTED, ROWS.append_column(ROW_WEIGHT, pa.array([1, 2, 3, 4])))

    found = {name: unpacked(table) for (_, name), table in direct.learnt.items()}
    assert {n: dict(zip(t["value"].to_pylist(), t["count"].to_pylist(), strict=True)) for n, t in found.items()} == {
        "a": {"x": 2, "y": 1, None: 1},
        "tags": {"p": 2, "q": 1, None: 1},
    }
    assert direct.rest == []
    assert weighted.learnt == {}
    assert weighted.rest == [(learn, "fit")]


def test_row_numbers_follow_the_final_order() -> None:
    order = np.array([2, 0, 1])

    numbers = row_numbers(5, 3, order).to_numpy()

    assert numbers[order].tolist() == row_numbers(5, 3).to_pylist()
