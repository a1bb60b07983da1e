"""Ops of plugins on a CPU and a GPU: number and order of rows."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from recsys_cli.errors import ConfigError
from recsys_cli.etl.polars_engine import PolarsEngine
from recsys_cli.ops import Op
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.ops.plan import FeaturePlan
from recsys_cli.ops.program import PlanStep

ROWS = pa.table({"price": [3.0, 1.0, 2.0], "user": ["a", "b", "a"]})
PLAN = FeaturePlan.model_validate({"user": "user", "item": "item", "label": "label", "ops": []})


class Half(Op):
    columns: tuple[str, ...] = ("price",)

    def polars(self, state: object, frame: pl.LazyFrame) -> pl.LazyFrame:
        return frame.with_columns(pl.col("price") / 2)


class Reversed(Half):
    def polars(self, state: object, frame: pl.LazyFrame) -> pl.LazyFrame:
        return super().polars(state, frame).reverse()


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_engine_checks_a_foreign_op_on_each_device(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pl, "GPUEngine", lambda **_: "in-memory")
    engine = PolarsEngine(tmp_path, device=device)
    fitted = FittedPlan(PLAN, ROWS.schema, {})
    half, reverses = (PlanStep(0, kind(op="x"), None, 0, ("price",)) for kind in (Half, Reversed))
    assert engine.apply([half, half], fitted, ROWS).column("price").to_pylist() == [0.75, 0.25, 0.5]
    with pytest.raises(ConfigError, match=r"the op .*:Reversed changes the order of rows"):
        engine.apply([reverses], fitted, ROWS)
