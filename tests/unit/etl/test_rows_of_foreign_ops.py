"""Ops of plugins in the engines: number and order of rows, on a GPU as well."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import polars as pl
import pyarrow as pa
import pytest

from recsys_cli.errors import ConfigError
from recsys_cli.etl.polars_engine import PolarsEngine
from recsys_cli.ops import ForeignOp
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.ops.plan import FeaturePlan
from recsys_cli.ops.program import PlanStep

ROWS = pa.table({"price": [3.0, 1.0, 2.0], "user": ["a", "b", "a"]})


class Half(ForeignOp):
    modules: ClassVar[dict[str, str]] = {"polars": f"{__name__}.half", "nvtabular": f"{__name__}.half"}
    columns: tuple[str, ...] = ("price",)


HALF = Half(op="half")


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    found = ModuleType(f"{__name__}.half")
    monkeypatch.setitem(sys.modules, found.__name__, found)
    return found


def halved(op: Half, state: object, rows: pa.Table, folder: object) -> pa.Table:
    assert set(ROWS.column_names) < set(rows.column_names)
    return rows.set_column(rows.column_names.index("price"), "price", pa.array([1.5, 0.5, 1.0]))


def test_nvtabular_rows_of_a_foreign_op_keep_their_order(module: Any) -> None:
    module.apply = halved
    expected = ROWS.set_column(0, "price", pa.array([1.5, 0.5, 1.0]))
    assert HALF.nvtabular({}, ROWS, Path()) == expected


@pytest.mark.parametrize(
    ("apply", "message"),
    [
        (lambda op, state, rows, folder: rows.sort_by("price"), "changes the order of rows"),
        (lambda op, state, rows, folder: rows.slice(1), "changes the number of rows from 3 to 2"),
        (lambda op, state, rows, folder: rows.select(["price"]), "drops columns of other ops"),
        (lambda op, state, rows, folder: rows.to_pandas(), "returns DataFrame instead of a pyarrow.Table"),
        (lambda op, state, rows, folder: rows.column("absent"), "failed: KeyError"),
    ],
)
def test_nvtabular_fault_of_a_foreign_op_names_it(module: Any, apply: Any, message: str) -> None:
    module.apply = apply
    with pytest.raises(ConfigError, match=rf"the op Half \(.*test_rows_of_foreign_ops\.half\) {message}"):
        HALF.nvtabular({}, ROWS, Path())


def test_polars_rows_of_a_foreign_op_keep_their_order(module: Any) -> None:
    module.apply = lambda op, state, frame: frame.with_columns(pl.col("price") / 2)
    made = HALF.polars({}, pl.LazyFrame(ROWS)).collect()
    assert made.equals(pl.DataFrame(ROWS).with_columns(pl.col("price") / 2))


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_engine_checks_a_foreign_op_on_each_device(
    module: Any, device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pl, "GPUEngine", lambda **_: "in-memory")
    step = PlanStep(0, HALF, None, 0, ("price",))
    engine, fitted = (
        PolarsEngine(tmp_path, device=device),
        FittedPlan(FeaturePlan.model_validate(PLAN), ROWS.schema, {}),
    )
    module.apply = lambda op, state, frame: frame.with_columns(pl.col("price") / 2)
    assert engine.apply([step, step], fitted, ROWS).column("price").to_pylist() == [0.75, 0.25, 0.5]
    module.apply = lambda op, state, frame: frame.reverse()
    with pytest.raises(ConfigError, match="changes the order of rows"):
        engine.apply([step], fitted, ROWS)


PLAN = {"user": "user", "item": "item", "label": "label", "ops": []}
