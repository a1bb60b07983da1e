"""Splits by session and by user, from rows to figures."""

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsys_cli.config import RunConfig
from recsys_cli.errors import ConfigError
from recsys_cli.evaluation import Evaluation
from recsys_cli.evaluation.held_out import value_hashes
from recsys_cli.evaluation.intervals import ranking_estimates
from recsys_cli.evaluation.loaded_run import model_of
from recsys_cli.evaluation.measure import measure
from recsys_cli.features.columns import USER_HASH
from recsys_cli.features.hashing import hash_values
from recsys_cli.features.schema import UNSEEN
from recsys_cli.loader.interactions import read_interactions, read_user_hashes
from recsys_cli.metrics import Hits
from recsys_cli.stages.etl import etl
from recsys_cli.stages.evaluate import evaluate
from recsys_cli.stages.train import train
from recsys_cli.workspace import PreparedData
from tests.rated import FEATURES

SESSIONS, GROUPS, SIZE, LENGTH = 500, 10, 8, 5
CONFIG: dict[str, Any] = {
    "dataset": {"name": "files", "interactions": "clicks.csv"},
    "split": {"method": "session", "valid": 0.1, "test": 0.2},
    "features": {
        "user": "session", "item": "item", "label": "label", "timestamp": "time",
        "ops": [
            {"op": "Categorify", "columns": ["session", "item"]},
            {"op": "LambdaOp", "expression": "1", "output": "label", "dtype": "int8"},
        ],
    },
    "train": {"device": "cpu"},
    "evaluate": {"k": [SIZE - LENGTH + 1], "bootstrap": 50, "fold_in_targets": 1},
}  # fmt: skip


@pytest.fixture
def clicks(tmp_path, monkeypatch):
    """Each session has items of one group; its last item is one of the four that it has not seen yet."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rows = []
    for session in range(SESSIONS):
        items = rng.permutation(SIZE)[:LENGTH] + SIZE * rng.integers(GROUPS)
        rows += [f"s{session},{item},{1_700_000_000 + 60 * session + step}" for step, item in enumerate(items)]
    lines = [rows[row] for row in rng.permutation(len(rows))]
    Path("clicks.csv").write_text("\n".join(["session,item,time", *lines]) + "\n")


def test_later_sessions_are_held_out_whole(clicks, workspace):
    data = etl(RunConfig.model_validate(CONFIG), workspace).artifact

    bounds = {}
    for split, share in (("train", 0.7), ("valid", 0.1), ("test", 0.2)):
        times = read_interactions(data, split, times=True).times
        assert times is not None
        assert len(times) == share * SESSIONS * LENGTH
        bounds[split] = times.min(), times.max()
    assert bounds["train"][1] < bounds["valid"][0] < bounds["valid"][1] < bounds["test"][0]
    assert pq.read_table(data.vocabulary("session")).num_rows == 0.7 * SESSIONS


@pytest.mark.parametrize("model", ["item-knn", "ease"])
def test_last_item_is_found_from_the_earlier_ones(clicks, workspace, model):
    config = RunConfig.model_validate({**CONFIG, "model": {"name": model}})
    etl(config, workspace)
    run = train(config, workspace).artifact
    evaluate(run, workspace)

    evaluation = Evaluation.read(run.evaluation)
    k = SIZE - LENGTH + 1
    assert evaluation.counts.users_ranked == evaluation.counts.relevant == 0.2 * SESSIONS
    assert evaluation.metrics[f"hr@{k}"].value == 1
    assert evaluation.ranking["popularity"][f"hr@{k}"].value < 0.2
    assert "a user's last row is the ground truth" in evaluation.protocol.users
    assert not any("optimistic" in note for note in evaluation.notes)


def test_each_next_item_is_ranked_by_the_items_before_it(clicks, workspace):
    k = SIZE - 1
    options = {**CONFIG["evaluate"], "k": [k], "fold_in_targets": "each", "max_ranking_users": 250}
    config = RunConfig.model_validate({**CONFIG, "model": {"name": "item-knn"}, "evaluate": options})
    data = etl(config, workspace).artifact
    run = train(config, workspace).artifact
    evaluate(run, workspace)

    whole = config.evaluate.model_copy(update={"max_ranking_users": None})
    measured, rankings = measure(model_of(run, config, data), data, whole)

    counts = Evaluation.read(run.evaluation).counts
    assert (counts.users_ranked, counts.users_eligible) == (250, 0.2 * SESSIONS * (LENGTH - 1))
    assert counts.users_in_words == "a sample of 250 of 400 next items"
    assert measured.ranking["model"][f"hr@{k}"].value == 1
    expected = _slow_twin(data, k)
    for metric, value in expected.items():
        assert measured.ranking["popularity"][f"{metric}@{k}"].value == pytest.approx(value)
    # Figures of one session are dependent: the same rankings without their owners have a narrower interval.
    (low, high), (naive_low, naive_high) = (
        ranking_estimates(
            {"popularity": Hits(rankings.hits["popularity"], rankings.num_relevant, owners=owners)}, [k], whole
        )["popularity"][f"hr@{k}"].interval
        or (0, 0)
        for owners in (rankings.owners, None)
    )
    assert high - low != pytest.approx(naive_high - naive_low, rel=1e-3)
    assert "each row but a user's first is a ranking" in measured.protocol.users


def test_intervals_of_stages_are_over_sessions(clicks, workspace):
    options = {**CONFIG["evaluate"], "k": [SIZE - 1], "fold_in_targets": "each", "max_ranking_users": None}
    model = {
        "name": "two-stage",
        "candidates": [{"name": "ease", "k": 30}, {"name": "item-knn", "k": 30}],
        "negatives": 5,
    }
    config = RunConfig.model_validate({**CONFIG, "model": model, "evaluate": options})
    etl(config, workspace)
    run = train(config, workspace).artifact
    evaluate(run, workspace)

    evaluation, name = Evaluation.read(run.evaluation), f"ndcg@{SIZE - 1}"
    whole, expected = evaluation.stages[-1].ndcg, evaluation.ranking["model"][name]
    assert whole is not None
    assert (whole.value, whole.low, whole.high) == pytest.approx((expected.value, expected.low, expected.high))
    assert evaluation.counts.users_ranked == 0.2 * SESSIONS * (LENGTH - 1)


def test_targets_of_a_split_by_time_are_refused(clicks, workspace):
    config = RunConfig.model_validate({**CONFIG, "model": {"name": "item-knn"}})
    etl(config, workspace)
    run = train(config, workspace).artifact
    with pytest.raises(ConfigError, match="all users of test are cold-start users"):
        evaluate(run, workspace, config=config.evaluate.model_copy(update={"targets": "last"}))


def _slow_twin(data: PreparedData, k: int) -> dict[str, float]:
    """Rank by train rows after each item of each test session, one by one."""
    train = Counter(read_interactions(data, "train").item_idx.tolist())
    ranked = sorted(train, key=lambda item: (-train[item], item))
    test, hashes = read_interactions(data, "test", times=True), read_user_hashes(data, "test")
    assert test.times is not None
    assert hashes is not None
    sessions: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for session, when, item in zip(hashes.tolist(), test.times.tolist(), test.item_idx.tolist(), strict=True):
        sessions[session].append((when, item))
    hits, reciprocal = [], []
    for rows in sessions.values():
        items = [item for _, item in sorted(rows)]
        for position in range(1, len(items)):
            top = [item for item in ranked if item not in items[:position]][:k]
            hits.append(items[position] in top)
            reciprocal.append(1 / (1 + top.index(items[position])) if hits[-1] else 0.0)
    return {"hr": float(np.mean(hits)), "mrr": float(np.mean(reciprocal))}


USERS = [f"somebody number {number}" if number % 2 else f"u{number}" for number in range(60)]


def _config(**split: Any) -> RunConfig:
    return RunConfig.model_validate({
        "dataset": {"name": "files", "interactions": "ratings.csv"}, "features": FEATURES, "split": split,
    })  # fmt: skip


@pytest.fixture
def raw(tmp_path, monkeypatch):
    """Ratings of 60 users, each of 5 of 20 items; by user and item."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    found = {(user, int(item)): float(rng.integers(1, 6)) for user in USERS for item in rng.permutation(20)[:5]}
    lines = [f"{user},{item},{rating}" for (user, item), rating in found.items()]
    Path("ratings.csv").write_text("\n".join(["userId,movieId,rating", *lines]) + "\n")
    return found


def test_held_out_rows_of_a_split_by_user_have_a_hash_of_their_user(raw, workspace):
    data = etl(_config(method="user", valid=0.2, test=0.2), workspace).artifact

    of = dict(zip(hash_values(pa.array(USERS)).tolist(), USERS, strict=True))
    movies = pq.read_table(data.vocabulary("movieId"))["value"].to_pylist()
    for split in ("valid", "test"):
        rows, hashes = read_interactions(data, split), read_user_hashes(data, split)
        assert hashes is not None
        assert set(rows.user_idx.tolist()) == {UNSEEN}
        users = [of[number] for number in hashes.tolist()]
        assert len(set(users)) == len(users) / 5 > 3
        for user, item, label in zip(users, rows.item_idx.tolist(), rows.labels.tolist(), strict=True):
            assert (raw[user, movies[item - 3]] > 3) == label
    assert USER_HASH not in pq.read_schema(data.shards("train")[0]).names
    assert USER_HASH not in data.schema.names


def test_users_whom_train_does_not_have_are_told_apart_after_any_split(raw, workspace):
    Path("train.csv").write_text("userId,movieId,rating\nann,m1,5\nbob,m2,1\n")
    Path("valid.csv").write_text("userId,movieId,rating\nann,m2,5\neve,m1,1\ndan,m2,4\neve,m2,5\n,m1,5\n")
    Path("test.csv").write_text("userId,movieId,rating\neve,m9,5\nann,m2,1\n")
    config = _config(method="files", train="train.csv", valid="valid.csv", test="test.csv")

    data = etl(config, workspace).artifact

    ann, bob, dan, eve = hash_values(pa.array(["ann", "bob", "dan", "eve"])).tolist()
    for split, wanted in {"valid": [None, eve, dan, eve, None], "test": [eve, None]}.items():
        kept = pa.concat_tables([pq.read_table(path, columns=[USER_HASH]) for path in data.shards(split)])
        assert kept[USER_HASH].to_pylist() == wanted
        assert read_user_hashes(data, split).tolist() == [value or 0 for value in wanted]
    assert read_user_hashes(data, "train") is None
    assert USER_HASH not in data.schema.names
    users = data.schema["userId"]
    assert value_hashes(data, users)[3:].tolist() == [ann, bob]  # a user has one hash, with an id or without


@pytest.mark.parametrize("options", [{"freq_threshold": 2}, {"freq_threshold": 2, "num_buckets": 3}, {"max_size": 4}])
def test_users_of_train_whom_the_vocabulary_leaves_out_are_told_apart(raw, workspace, options):
    Path("train.csv").write_text("userId,movieId,rating\nann,m1,5\nann,m2,1\nbob,m3,1\neve,m4,1\n")
    Path("valid.csv").write_text("userId,movieId,rating\nbob,m1,5\n")
    ops = [
        {"op": "Categorify", "columns": ["userId"], **options},
        {"op": "Categorify", "columns": ["movieId"]},
        *FEATURES["ops"][1:],
    ]
    config = RunConfig.model_validate({
        "dataset": {"name": "files", "interactions": "ratings.csv"}, "features": {**FEATURES, "ops": ops},
        "split": {"method": "files", "train": "train.csv", "valid": "valid.csv"},
    })  # fmt: skip

    data = etl(config, workspace).artifact

    movies = pq.read_table(data.vocabulary("movieId"))["value"].to_pylist()
    rows, hashes = read_interactions(data, "train"), read_user_hashes(data, "train")
    assert hashes is not None
    bob, eve = hash_values(pa.array(["bob", "eve"])).tolist()
    found = {movies[item - 3]: value for item, value in zip(rows.item_idx.tolist(), hashes.tolist(), strict=True)}
    assert found == {"m1": 0, "m2": 0, "m3": bob, "m4": eve}
    assert read_user_hashes(data, "valid").tolist() == [bob]
