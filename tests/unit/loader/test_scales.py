"""The scale of a label covers all rows, for any number of files and any mean."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsys_cli.features.schema import Column, Kind, Role, Schema, Task
from recsys_cli.loader import scales
from recsys_cli.workspace import PreparedData, write_manifest


def write(folder: Path, parts: list[np.ndarray], task: Task = "regression") -> PreparedData:
    (folder / "train").mkdir(parents=True)
    for number, part in enumerate(parts):
        pq.write_table(pa.table({"seconds": part}), folder / "train" / f"{number:05d}.parquet")
    column = Column(name="seconds", role=Role.LABEL, kind=Kind.NUMERIC, dtype="float64", task=task)
    Schema(columns=(column,)).write(folder / "schema.json")
    rows = {"train": sum(len(part) for part in parts)}
    write_manifest(folder, "PreparedData", {"key": "by-hand", "rows": rows})
    return PreparedData(folder)


@pytest.mark.parametrize("mean", [0.0, 1e9])
def test_mean_and_deviation_are_those_of_all_rows(tmp_path: Path, mean: float) -> None:
    values = mean + np.random.default_rng(0).normal(0, 2.5, 5_000)
    found = scales(write(tmp_path / "data", [values[:7], values[7:7], values[7:4_000], values[4_000:]]))

    assert found["seconds"].mean == pytest.approx(values.mean(), rel=1e-12)
    assert found["seconds"].deviation == pytest.approx(values.std(), rel=1e-6)


def test_values_that_are_all_the_same_may_be_divided_by_their_deviation(tmp_path: Path) -> None:
    found = scales(write(tmp_path / "data", [np.full(5, 3.5), np.full(2, 3.5)]))["seconds"]
    assert (found.mean, found.deviation) == (3.5, 1.0)


def test_labels_of_0_and_1_have_no_scale(tmp_path: Path) -> None:
    assert scales(write(tmp_path / "data", [np.array([0.0, 1.0])], task="binary")) == {}
