"""`recsys init` ranks the items of a table of interactions; `--task label` predicts its rating or label."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from recsys_cli.config import RunConfig, load
from tests.cli.conftest import Recsys

ROWS = 4_000
Column = Callable[[np.ndarray], Any]

# Column and values by how much the user likes the item, between 0 and 1; and the share of the best rows that are positive.
TARGETS: dict[str, tuple[str, Column, str]] = {
    "stars": ("rating", lambda like: 1 + np.round(4 * like), "rating > 3"),
    "half stars": ("stars", lambda like: 0.5 + np.round(9 * like) / 2, "stars > 3"),
    "of ten": ("score", lambda like: np.round(10 * like).astype(int), "score > 6"),
    "of three": ("rating", lambda like: np.round(3 * like).astype(int), "rating > 1.8"),
    "not rated": ("rating", lambda like: np.where(like < 0.2, -1, np.round(10 * like)).astype(int), "rating > 6"),
    "clicks": ("clicked", lambda like: (like > 0.7).astype(int), ""),
    "likes": ("liked", lambda like: np.where(like > 0.6, "yes", "no"), 'liked == "yes"'),
}


def write(target: str, *, owner: str = "user", timed: bool = True, **more: Any) -> str:
    """Write users who meet most items of their own half and like them; return the expression of a positive row."""
    rng = np.random.default_rng(3)
    users, items = rng.integers(0, 120, 2 * ROWS), rng.integers(0, 60, 2 * ROWS)
    seen = np.flatnonzero(((users + items) % 2 == 0) | (rng.random(2 * ROWS) < 0.4))[:ROWS]
    users, items = users[seen], items[seen]
    like = np.where((users + items) % 2 == 0, 0.6, 0.0) + 0.4 * rng.random(ROWS)
    name, values, positive = TARGETS[target]
    columns = {f"{owner}_id": users, "item_id": items, name: values(like), **more}
    pl.DataFrame(columns | ({"time": 1_600_000_000 + 60 * np.arange(ROWS)} if timed else {})).write_csv("t.csv")
    return positive


def proposed(recsys: Recsys, *line: str) -> RunConfig:
    """Return the config of `init --yes`."""
    answer = recsys("init", "t.csv", "--yes", *line)
    assert answer.code == 0, answer.err
    return load(Path("t.yaml"))


def expressions(config: RunConfig) -> list[str]:
    return [text for op in config.features.ops if op.name == "LambdaOp" for text in op.expressions.values()]


@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize("target", TARGETS)
def test_ratings_and_labels_are_ranked(recsys, target, timed):
    positive = write(target, timed=timed, price=np.arange(ROWS) % 7 / 3)
    config = proposed(recsys)
    assert config.model.name == "auto"
    assert [text.replace("'", '"') for text in expressions(config)] == ([positive] if positive else [])
    assert ("Filter" in [op.name for op in config.features.ops]) is (target in {"not rated", "clicks", "likes"})
    assert config.features.timestamp == ("time" if timed else None)
    assert config.features.categorified == (config.features.user, config.features.item)  # nothing of the row alone
    made = recsys("--json", "run", "t.yaml", *(["model={name: ease}"] if timed else []))  # sasrec takes long
    assert made.code == 0, made.err
    ranking = made.json["evaluate"]["ranking"]
    assert ranking["model"]["ndcg@10"]["value"] > ranking["popularity"]["ndcg@10"]["value"]


def test_ratings_of_sessions_are_ranked(recsys):
    write("stars", owner="session")
    config = proposed(recsys)
    assert (config.split.method, config.evaluate.fold_in_targets, expressions(config)) == ("session", 1, ["rating > 3"])


def test_the_order_of_the_rows_is_kept_for_rankings(recsys):
    write("stars", timed=False, position=np.arange(ROWS))
    config = proposed(recsys)
    assert (config.features.timestamp, config.split.method) == ("position", "leave-last-out")


@pytest.mark.parametrize(("target", "label"), [("stars", "label"), ("clicks", "clicked"), ("likes", "label")])
def test_the_label_is_predicted_on_request(recsys, target, label):
    write(target, shop=np.arange(ROWS) % 7)
    config = proposed(recsys, "--task", "label")
    assert (config.model.name, config.features.labels[0]) == ("mlp", label)
    assert config.train.monitor == "log_loss"
    assert ("shop" in config.features.categorified) is (target != "stars")
    assert ("set the label to {name: rating, task: regression}" in Path("t.yaml").read_text()) is (target == "stars")
    assert proposed(recsys, "--task", "rank", "--force").model.name == "auto"


def test_a_given_column_without_effect_is_a_note(recsys):
    write("clicks", stars=1 + np.arange(ROWS) % 5)
    notes = recsys("--json", "init", "t.csv", "--rating", "stars", "--label", "clicked", "--user", "user_id").json[
        "notes"
    ]
    (said,) = [note for note in notes if "has no effect" in note]
    assert said.startswith(
        "--rating stars has no effect: the task is to rank the items for a user; rows with clicked 1"
    )


def test_repeated_pairs_are_a_note(recsys):
    for rows, is_noted in ((900, True), (150, False)):
        lines = [f"{row % 20},{row % 600 * 7 % 31}\n" for row in range(rows)]
        Path("t.csv").write_text("user,item\n" + "".join(lines))
        answer = recsys("--json", "init", "t.csv", "--yes", "--force")
        notes = [note for note in answer.json["notes"] if "evaluate.repeats=true keeps them" in note]
        assert bool(notes) is is_noted
        assert all(note.startswith("33% of the sampled rows repeat") for note in notes)


def test_rows_without_a_user_are_no_repeats(recsys):
    lines = [f"{row % 20 if row % 2 else ''},{row // 20}\n" for row in range(600)]
    Path("t.csv").write_text("user,item\n" + "".join(lines))
    answer = recsys("--json", "init", "t.csv", "--yes")
    assert not [note for note in answer.json["notes"] if "repeat" in note]


def test_the_split_has_its_reason(recsys):
    write("stars", timed=False)
    answer = recsys("init", "t.csv", "--yes")
    assert "random: if the table has a time column, set features.timestamp" in " ".join(answer.out.split())


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        ("".join(f"a,i{k},5,1\n" for k in range(9)), []),
        ("".join(f"u{k % 5},i{k % 7},5,day {k}\n" for k in range(9)), ["--timestamp", "when"]),
    ],
)
def test_an_error_without_a_config_has_no_hint_on_its_keys(recsys, rows, line):
    Path("t.csv").write_text("user,item,rating,when\n" + rows)
    answer = recsys("init", "t.csv", "--yes", *line)
    assert answer.code in {2, 4}
    assert "no config written" in answer.err
    assert "name other columns with --user, --item" in answer.err
    assert "features" not in answer.err


def test_a_table_without_label_has_none_to_predict(recsys):
    Path("t.csv").write_text("user,item\n" + "".join(f"{k % 9},{k % 7}\n" for k in range(60)))
    answer = recsys("init", "t.csv", "--yes", "--task", "label")
    assert answer.code == 2
    assert "--task label predicts a label or a rating, and no column has either" in answer.err
    assert not Path("t.yaml").exists()


@pytest.mark.slow
def test_the_model_of_real_ratings_is_better_than_popularity(recsys, shared_data):
    with zipfile.ZipFile(shared_data / "ml-latest-small.zip") as archive:
        rows = pl.read_csv(archive.read("ml-latest-small/ratings.csv"))
    top = rows["movieId"].value_counts(sort=True).head(300)["movieId"]
    rows.filter(pl.col("movieId").is_in(top.implode())).write_csv("t.csv")
    proposed(recsys)
    made = recsys("--json", "run", "t.yaml")
    assert made.code == 0, made.err
    ranking = json.loads(made.out)["evaluate"]["ranking"]
    assert ranking["model"]["ndcg@10"]["low"] > ranking["popularity"]["ndcg@10"]["value"]
