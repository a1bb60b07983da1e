"""Small trained runs of every kind of model, on ratings with movies that have titles and genres."""

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest

import recsys_cli as recsys
from recsys_cli.serving.recommender import Recommender
from recsys_cli.stages.export import served_run

USERS, ITEMS = 60, 45
GENRES = (["Comedy"], ["Drama", "War"], ["Comedy", "Romance"], ["Drama"])
COLUMNS = {"user": "userId", "item": "movieId", "rating": "rating", "timestamp": "timestamp"}
COLLABORATIVE = "fm with collaborative features"
MODELS = ("mf", "two-tower", "ease", "ials", "sasrec", "fm", "popularity", "lightgcn", "item-knn", COLLABORATIVE)
OPTIONS: dict[str, dict[str, Any]] = {
    "mf": {"embedding_dim": 8},
    "ials": {"embedding_dim": 8},
    "lightgcn": {"embedding_dim": 8},
    "two-stage": {
        "candidates": [{"name": "ease", "k": 10}, {"name": "popularity", "k": 10}],
        "ranker": {"name": "lightgbm", "num_trees": 10},
    },
    COLLABORATIVE: {"collaborative": {"embedding_dim": 4, "positions": 4}},
}

MakeRun = Callable[[str], recsys.TrainedRun]


def movies() -> pl.DataFrame:
    """Movies 1 to 45; ratings have the first 40 only."""
    ids = range(1, ITEMS + 1)
    return pl.DataFrame({
        "movieId": ids,
        "title": [f"Movie {number:02}" for number in ids],
        "genres": [GENRES[number % 4] for number in ids],
        "year": [1980 + number % 20 for number in ids],
    })  # fmt: skip


def ratings() -> pl.DataFrame:
    """Users rate 30 of 40 movies; those of their own parity get 5 stars more often."""
    rng = np.random.default_rng(0)
    user, item = (part.ravel() for part in np.meshgrid(np.arange(1, USERS + 1), np.arange(1, 41), indexing="ij"))
    liked = np.where((user + item) % 2 == 0, 0.9, 0.2) > rng.random(len(user))
    frame = pl.DataFrame({"userId": user, "movieId": item, "rating": np.where(liked, 5, 2)})
    return frame.sample(1_500, shuffle=True, seed=1).with_columns(timestamp=pl.int_range(1_500))


@pytest.fixture(scope="session")
def served_workspace(tmp_path_factory):
    return recsys.Workspace(str(tmp_path_factory.mktemp("serving") / "workspace"))


@pytest.fixture(scope="session")
def make_run(served_workspace):
    """Train a model once per session."""
    made: dict[str, recsys.TrainedRun] = {}

    def make(model):
        if model not in made:
            config = config_of(model, served_workspace)
            recsys.etl(config, served_workspace, progress=False)
            made[model] = recsys.train(config, served_workspace, progress=False)
        return made[model]

    return make


def history_of(model: Recommender, user: int) -> list[Any]:
    """Return the stored history of a user, oldest first."""
    served = model.served
    stored = served.histories.of_user(int(served.users.encode([user])[0]))
    return served.items.decode(stored.items.astype(np.int64)).to_pylist()


def contextual_run(workspace: recsys.Workspace) -> recsys.TrainedRun:
    """Train fm on ratings with a column of the interaction, the device, and with users of a joined table."""
    rows = ratings().with_columns(
        device=pl.when(pl.col("userId") % 3 == 0).then(pl.lit("tv")).otherwise(pl.lit("phone"))
    )
    people = pl.DataFrame({"userId": range(1, 71), "age": [number % 5 for number in range(1, 71)]})
    train = {"epochs": 2, "batch_size": 256, "device": "cpu"}
    values = recsys.config_from_frame(ratings(), workspace, **COLUMNS, model="fm", train=train).model_dump()
    values["dataset"] = recsys.dataset_from_frames(workspace, rows, people=people)
    join = {"op": "JoinExternal", "table": "people", "on": "userId", "columns": ["age"]}
    ids = {"op": "Categorify", "columns": ["userId", "movieId", "age", "device"]}
    values["features"]["ops"] = [join, ids, *values["features"]["ops"][1:]]
    config = recsys.load_config(values)
    recsys.etl(config, workspace, progress=False)
    return recsys.train(config, workspace, progress=False)


def config_of(model: str, workspace: recsys.Workspace) -> recsys.RunConfig:
    """Return the config of a model on the ratings, with the movies joined."""
    train = {"epochs": 2, "batch_size": 64 if model == "sasrec" else 256, "device": "cpu"}
    config = recsys.config_from_frame(ratings(), workspace, **COLUMNS, model=model.partition(" ")[0], train=train)
    values = config.model_dump()
    values["model"] |= OPTIONS.get(model, {})
    values["dataset"] = recsys.dataset_from_frames(workspace, ratings(), movies=movies())
    join = {"op": "JoinExternal", "table": "movies", "on": "movieId", "columns": ["genres", "year"]}
    ids = {"op": "Categorify", "columns": ["userId", "movieId", "genres", "year"]}
    values["features"]["ops"] = [join, ids, *values["features"]["ops"][1:]]
    return recsys.load_config(values)


@pytest.fixture(scope="session")
def recommenders(make_run, served_workspace):
    """Return the recommender of a model's run, loaded once per session."""
    loaded: dict[str, Recommender] = {}

    def of(model):
        if model not in loaded:
            loaded[model] = Recommender(served_run(make_run(model), served_workspace))
        return loaded[model]

    return of
