"""The ETL on a GPU has to give what it gives on a CPU: each op of each engine, and nothing falls back that should run there.

These tests have never run: they were written where there is no GPU.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from recsys_cli.events import Event, Message
from recsys_cli.ops import (
    Bucketize,
    Categorify,
    Clip,
    FillMedian,
    FillMissing,
    HashBucket,
    HashedCross,
    JoinExternal,
    JoinGroupby,
    LambdaOp,
    LogOp,
    Normalize,
    NormalizeMinMax,
    TargetEncoding,
)
from recsys_cli.registry import ENGINES, load
from tests.engines import answer, assert_close, plan
from tests.strategies import Case


def _missing(name: str) -> str | None:
    if not torch.cuda.is_available():
        return "no CUDA device"
    error = load(ENGINES[name]).missing("gpu")
    return None if error is None else f"{error.message} ({error.hint})"


def _engine(name: str) -> Any:
    reason = _missing(name)
    return pytest.param(name, marks=[pytest.mark.skip(reason=reason)] if reason else [])


pytestmark = pytest.mark.gpu
every_engine = pytest.mark.parametrize("name", [_engine(name) for name in ENGINES])
IDS = Categorify(columns=("user", "item"))
JOIN = JoinExternal(table="items", on="item", columns=("genres", "year", "price"))
PRICES = JoinExternal(table="items", on="item", columns=("year", "price"))
OPS: dict[str, tuple[Any, ...]] = {
    "Categorify": (IDS,),
    "Categorify of joined columns and lists": (JOIN, Categorify(columns=("user", "item", "genres", "year"))),
    "Categorify with buckets": (Categorify(columns=("user", "item"), freq_threshold=3, num_buckets=7),),
    "LambdaOp": (IDS, LambdaOp(expression="rating > 3 and number < 0", output="liked", dtype="int8")),
    "FillMissing": (IDS, FillMissing(columns=("number",), fill_val=1)),
    "FillMedian": (IDS, FillMedian(columns=("number",))),
    "Clip and LogOp": (IDS, Clip(columns=("number",), min_value=0), LogOp(columns=("number",))),
    "Normalize": (IDS, Normalize(columns=("number",))),
    "NormalizeMinMax": (IDS, NormalizeMinMax(columns=("number",))),
    "Bucketize": (IDS, Bucketize(columns=("number",), boundaries={"number": (-1.0, 0.0, 1.0)})),
    "HashBucket": (IDS, HashBucket(columns=("day",), num_buckets=5)),
    "HashedCross": (IDS, HashedCross(columns=("day", "user"), num_buckets=9)),
    "JoinGroupby": (IDS, JoinGroupby(columns=("day",), cont_cols=("rating",), stats=("count", "mean", "std"))),
    "JoinGroupby of a table": (PRICES, IDS, JoinGroupby(columns=("year",), cont_cols=("price",), stats=("count", "max"))),
    "TargetEncoding": (TargetEncoding(columns=("user", ("user", "day")), target="rating"), IDS),
}  # fmt: skip
ON_GPU = ("Categorify", "LambdaOp")
"""What is known to be made of queries that cudf-polars supports."""


def case(*ops: Any, rows: int = 20_000) -> Case:
    rng = np.random.default_rng(1)

    def interactions(size: int) -> pa.Table:
        number = rng.normal(size=size)
        return pa.table({
            "user": pa.array([None if at % 50 == 0 else f"u{at}" for at in rng.integers(0, 900, size)]),
            "item": rng.integers(-300, 300, size), "day": rng.integers(0, 7, size).astype(np.int8),
            "rating": rng.integers(1, 11, size) / 2,
            "number": pa.array(np.where(rng.random(size) < 0.1, np.nan, number), from_pandas=True),
        })  # fmt: skip

    items = pa.table({
        "item": np.arange(-200, 300), "year": pa.array([None if at % 9 == 0 else 1990 + at % 30 for at in range(500)]),
        "genres": [[f"g{g}" for g in range(at % 4)] for at in range(500)], "price": rng.normal(5, 2, 500),
    })  # fmt: skip
    return Case({"train": interactions(rows), "valid": interactions(rows // 10)}, {"items": items}, plan(*ops))


@every_engine
@pytest.mark.parametrize("ops", OPS)
def test_an_op_gives_the_same_on_the_device(name: str, ops: str, tmp_path: Path) -> None:
    expected = answer("polars", case(*OPS[ops]), tmp_path / "cpu")
    assert_close(answer(name, case(*OPS[ops]), tmp_path / "gpu", device="gpu"), expected)


@pytest.mark.parametrize("name", [_engine("polars")])
@pytest.mark.parametrize("ops", ON_GPU)
def test_an_op_does_not_fall_back(name: str, ops: str, tmp_path: Path) -> None:
    told: list[Event] = []
    answer(name, case(*OPS[ops]), tmp_path, device="gpu", emit=told.append)
    assert [event.text for event in told if isinstance(event, Message)] == []


@every_engine
@pytest.mark.parametrize("run", range(5))
def test_no_row_is_lost_in_counting_a_million(name: str, run: int, tmp_path: Path) -> None:
    made = answer(name, case(IDS, rows=1_000_000), tmp_path, device="gpu")
    for column in ("user", "item"):
        counted = sum(made.vocabulary(column).values())
        assert counted == 1_000_000 - made.column(column).count(1)
