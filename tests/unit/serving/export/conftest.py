"""Runs on rows with every kind of column: text, numbers with nulls, intervals, hashes, weighted lists, and joined tables."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
import pytest

import recsys_cli as recsys
from recsys_cli.serving.served import ServedModel
from recsys_cli.stages.export import served_run
from tests.served_runs import OPTIONS

MakeServed = Callable[..., ServedModel]
_ROWS = 400
GENRES = (["Comedy"], ["Drama", "War"], [], ["Comedy", "Romance", "Drama"])


def rows() -> pl.DataFrame:
    """Interactions of 20 users and 15 of 18 items, with features of their own."""
    rng = np.random.default_rng(0)

    def with_nulls(values: list[object]) -> list[object]:
        return [None if rng.random() < 0.1 else value for value in values]

    sizes = rng.integers(0, 4, _ROWS)
    return pl.DataFrame({
        "userId": rng.integers(1, 21, _ROWS),
        "movieId": rng.integers(1, 16, _ROWS),
        "rating": rng.choice([2, 5], _ROWS),
        "timestamp": range(_ROWS),
        "city": with_nulls(rng.choice(["Ulm", "Köln", "", "Bonn"], _ROWS).tolist()),
        "age": with_nulls(rng.integers(10, 80, _ROWS).tolist()),
        "price": with_nulls((rng.random(_ROWS) * 9 - 1).tolist()),
        "pages": rng.integers(0, 300, _ROWS),
        "height": with_nulls((rng.random(_ROWS) * 2).tolist()),
        "agent": rng.choice(["a", "b", "c"], _ROWS),
        "tags": [rng.choice(["x", "y", "z"], size).tolist() for size in sizes],
        "strengths": [rng.random(size).tolist() for size in sizes],
    })  # fmt: skip


@pytest.fixture(scope="session")
def interactions() -> pl.DataFrame:
    return rows()


def movies() -> pl.DataFrame:
    """Movies 1 to 18; interactions have the first 15 only."""
    return pl.DataFrame({
        "movieId": range(1, 19),
        "genres": [GENRES[number % 4] for number in range(18)],
        "year": [1980 + number % 5 for number in range(18)],
        "length": [90.0 + number for number in range(18)],
    })  # fmt: skip


OPS = [
    {"op": "JoinExternal", "table": "movies", "on": "movieId", "columns": ["genres", "year", "length"]},
    {"op": "Categorify", "columns": ["userId", "movieId", "city", "genres", "year", "tags"]},
    {"op": "FillMissing", "columns": ["age"], "fill_val": 30, "add_binary_cols": True},
    {"op": "Clip", "columns": ["age"], "min_value": 18, "max_value": 60},
    {"op": "NormalizeMinMax", "columns": ["age"]},
    {"op": "FillMedian", "columns": ["price", "height", "length"]},
    {"op": "Clip", "columns": ["price"], "min_value": 0},
    {"op": "LogOp", "columns": ["price"]},
    {"op": "Normalize", "columns": ["price", "length"]},
    {"op": "Bucketize", "columns": ["height", "pages"], "boundaries": {"height": [0.5, 1.0, 1.7], "pages": [50, 200]}},
    {"op": "HashBucket", "columns": ["agent"], "num_buckets": 5},
]


def config_of(model: str, workspace: recsys.Workspace) -> recsys.RunConfig:
    """Return the config of a model on these rows."""
    columns = {"user": "userId", "item": "movieId", "rating": "rating", "timestamp": "timestamp"}
    train = {"epochs": 1, "batch_size": 64, "device": "cpu", "learning_rate": 0.03}
    config = recsys.config_from_frame(rows(), workspace, **columns, model=model.partition(" ")[0], train=train)
    values = config.model_dump()
    values["model"] |= OPTIONS.get(model, {})
    values["dataset"] = recsys.dataset_from_frames(workspace, rows(), movies=movies())
    values["features"]["ops"] = [*OPS, *values["features"]["ops"][1:]]
    values["features"]["list_weights"] = {"tags": "strengths"}
    return recsys.load_config(values)


@pytest.fixture(scope="session")
def export_workspace(tmp_path_factory: pytest.TempPathFactory) -> recsys.Workspace:
    return recsys.Workspace(str(tmp_path_factory.mktemp("export") / "workspace"))


@pytest.fixture(scope="session")
def runs(export_workspace: recsys.Workspace) -> Callable[[str], recsys.TrainedRun]:
    """Train a model once per session."""
    made: dict[str, recsys.TrainedRun] = {}

    def of(model: str) -> recsys.TrainedRun:
        if model not in made:
            config = config_of(model, export_workspace)
            recsys.etl(config, export_workspace, progress=False)
            made[model] = recsys.train(config, export_workspace, progress=False)
        return made[model]

    return of


@pytest.fixture(scope="session")
def served(runs: Callable[[str], recsys.TrainedRun], export_workspace: recsys.Workspace) -> MakeServed:
    """Return a new served model of a run."""

    def of(model: str) -> ServedModel:
        return served_run(runs(model), export_workspace)

    return of
