"""What held-out rows may see of their user: all before a split in order of time, and of it only where labels come in that order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import recsys_cli as recsys
from recsys_cli.config import EvaluateConfig
from recsys_cli.errors import DataError
from recsys_cli.evaluation.new_users import SplitByUser
from recsys_cli.features.columns import HISTORY_USER
from recsys_cli.loader import Loader

COLUMNS = {"user": "user", "item": "item", "rating": "rating", "timestamp": "time"}


def by_user(tmp_path: Path, split: dict[str, object]) -> tuple[SplitByUser, recsys.PreparedData]:
    draw = np.random.default_rng(0)
    users = np.repeat(np.arange(40), 10)
    frame = pl.DataFrame(
        {
            "user": users,
            "item": draw.integers(0, 20, 400),
            "rating": draw.integers(1, 6, 400),
            "time": users * 10 + np.tile(np.arange(10), 40) * 9 + 2**40,
        }
    )
    workspace = recsys.Workspace(str(tmp_path / "workspace"))
    config = recsys.config_from_frame(frame, workspace, **COLUMNS, model="fm").model_dump()
    config["split"] = split
    config["etl"]["shard_rows"] = 100
    data = recsys.etl(recsys.load_config(config), workspace, progress=False)
    return SplitByUser.read(data, "test", EvaluateConfig()), data


def test_rows_of_a_split_by_time_see_earlier_rows_of_the_split(tmp_path: Path) -> None:
    found, data = by_user(tmp_path, {"method": "temporal", "valid": 0.1, "test": 0.2})
    assert len(found.earlier) == len(found.before) + len(found.rows)
    assert len(found.new)  # users of test alone, each with an id
    loader = Loader(data, "test", batch_size=7, times=True, history_users=found.rows.user_idx)
    batches = list(loader)
    assert np.array_equal(np.concatenate([batch.features[HISTORY_USER] for batch in batches]), found.rows.user_idx)
    assert np.array_equal(np.concatenate([batch.features["time"] for batch in batches]), found.rows.times)
    assert found.rows.times.max() > 2**40


def test_rows_of_a_random_split_see_only_rows_before_it(tmp_path: Path) -> None:
    found, _ = by_user(tmp_path, {"method": "random", "valid": 0.1, "test": 0.2})
    assert len(found.earlier) == len(found.before)


@pytest.mark.parametrize("memory", [64, 0])
def test_times_are_exact_in_memory_and_in_a_stream(
    tmp_path: Path, memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, data = by_user(tmp_path, {"method": "temporal", "valid": 0.1, "test": 0.2})
    stored = np.sort(pl.concat([pl.read_parquet(path) for path in data.shards("train")])["time"].to_numpy())
    if not memory:
        monkeypatch.setattr(
            "recsys_cli.loader.records.Layout.num_bytes", lambda layout, groups: 65 << 20 if groups[1:] else 9
        )
    loader = Loader(data, "train", batch_size=64, shuffle=True, memory=64, times=True)
    assert loader.resident == bool(memory)
    assert np.array_equal(np.sort(np.concatenate([batch.features["time"] for batch in loader])), stored)


def test_rows_without_a_time_are_refused(tmp_path: Path) -> None:
    _, data = by_user(tmp_path, {"method": "temporal", "valid": 0.1, "test": 0.2})
    path = data.shards("train")[0]
    frame = pl.read_parquet(path)
    frame.with_columns(time=pl.when(pl.arange(len(frame)) > 0).then("time")).write_parquet(path)
    with pytest.raises(DataError, match="1 rows have no 'time', so their histories have no end"):
        Loader(data, "train", batch_size=64, times=True)
