"""Published data and protocols on small files of the publishers' formats: figures equal those of slow, independent evaluations."""

import csv
import io
import math
import zipfile
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recsys_cli import registry
from recsys_cli.config import load
from recsys_cli.data.published import given_splits
from recsys_cli.protocols import path_of
from tests.cli.conftest import Recsys
from tests.event_configs import config_text
from tests.publishers import OF_PROTOCOLS, SAMPLES, _likes

PENALTY = 20.0
Histories = Mapping[int, list[int]]
Scores = Callable[[Iterable[int]], dict[int, float]]


def bench(recsys: Recsys, name: str, given: Path) -> dict[str, Any]:
    """Run EASE and popularity under a protocol."""
    models = f"bench.models=[{{name: ease, regularization: {PENALTY}}}, popularity]"
    ran = recsys("--json", "bench", "--protocol", name, "--from-file", given, models, "evaluate.bootstrap=20")
    assert ran.code == 0, ran.err
    return ran.json


def figures(found: dict[str, Any]) -> dict[str, float]:
    """The figures of EASE by metric."""
    (ease,) = [row for row in found["standings"] if row["label"] == "ease" and not row["is_baseline"]]
    return {name: score["value"] for name, score in ease["scores"].items()}


def ease(train: Histories) -> Scores:
    """Scores of the items of train for a history, after equation 8 of Steck (2019)."""
    items = sorted({item for liked in train.values() for item in liked})
    column = {item: number for number, item in enumerate(items)}
    matrix = np.zeros((len(train), len(items)))
    for row, liked in enumerate(train.values()):
        matrix[row, [column[item] for item in liked]] = 1
    inverse = np.linalg.inv(matrix.T @ matrix + PENALTY * np.eye(len(items)))
    weights = -inverse / np.diag(inverse)
    np.fill_diagonal(weights, 0)

    def scores(history: Iterable[int]) -> dict[int, float]:
        total = sum((weights[column[item]] for item in history if item in column), np.zeros(len(items)))
        return dict(zip(items, total.tolist(), strict=True))

    return scores


def ranked(scores: dict[int, float], among: Iterable[int]) -> list[int]:
    """The items by falling score; equal scores would leave the order open."""
    order = sorted((item for item in among if item in scores), key=lambda item: -scores[item])
    assert all(scores[one] - scores[other] > 1e-12 for one, other in pairwise(order))
    return order


def gain(places: list[int]) -> float:
    return sum(1 / math.log2(place + 1) for place in places)


def ndcg(order: list[int], targets: set[int], k: int) -> float:
    hits = [place for place, item in enumerate(order[:k], start=1) if item in targets]
    return gain(hits) / gain(list(range(1, min(k, len(targets)) + 1)))


def recall(order: list[int], targets: set[int], k: int) -> float:
    return len(targets & set(order[:k])) / len(targets)


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def in_pairs(path: Path, separator: str | None = None) -> list[list[int]]:
    return [[int(field) for field in line.split(separator)] for line in path.read_text().splitlines()]


def last_out(histories: Histories) -> dict[str, float]:
    """The last item of each user, ranked by the one before and the train items, among all other items."""
    scores = ease({user: items[:-2] for user, items in histories.items()})
    found: dict[str, list[float]] = {"ndcg@10": [], "hr@10": []}
    for items in histories.values():
        of_user = scores(items[:-1])
        order = ranked(of_user, of_user.keys() - set(items[:-1]))
        found["ndcg@10"].append(ndcg(order, {items[-1]}, 10))
        found["hr@10"].append(float(items[-1] in order[:10]))
    return {name: mean(values) for name, values in found.items()}


def test_last_item_of_a_history_file(recsys, tmp_path):
    given = tmp_path / "Toys_and_Games.txt"
    likes = _likes(60, 40)
    given.write_text("".join(f"{user + 1} {' '.join(map(str, items))}\n" for user, items in enumerate(likes)))

    found = bench(recsys, "s3-toys", given)

    assert figures(found) == pytest.approx(last_out(dict(enumerate(likes))))


def test_last_item_of_a_file_of_pairs(recsys, tmp_path):
    given = OF_PROTOCOLS["ml1m-sasrec"](tmp_path)
    histories: dict[int, list[int]] = {}
    for user, item in in_pairs(given):
        histories.setdefault(user, []).append(item)

    found = bench(recsys, "ml1m-last-out", given)

    assert figures(found) == pytest.approx(last_out(histories))
    assert found["published"]["verified"] == "rows"
    assert found["published"]["notes"][-1].startswith("changed from the protocol: bench.models=[{name: ease")
    assert "ml-1m.txt has another digest than published" in found["published"]["differences"]
    assert not any(model["verdicts"] for model in found["published"]["models"])


def test_one_item_among_given_negatives(recsys, tmp_path):
    folder = OF_PROTOCOLS["ml1m-ncf"](tmp_path)
    train: dict[int, list[int]] = {}
    for user, item, *_ in in_pairs(folder / "ml-1m.train.rating"):
        train.setdefault(user, []).append(item)
    scores = ease(train)
    hits, gains = [], []
    for line in (folder / "ml-1m.test.negative").read_text().splitlines():
        pair, *negatives = line.split("\t")
        user, item = map(int, pair.strip("()").split(","))
        order = ranked(scores(train[user]), {item, *map(int, negatives)})
        hits.append(float(item in order[:10]))
        gains.append(ndcg(order, {item}, 10))

    found = bench(recsys, "ml1m-ncf", folder)

    assert figures(found) == pytest.approx({"sampled_ndcg@10": mean(gains), "sampled_hr@10": mean(hits)})
    assert found["protocol"]["candidates"].startswith("GIVEN")


@pytest.mark.parametrize("name", ["gowalla-m1", "movielens1m-m1"])
def test_published_train_and_test_lists(name, recsys, tmp_path):
    given, other = tmp_path / "given", tmp_path / "other"
    given.mkdir()
    other.mkdir()
    OF_PROTOCOLS[name](given)
    OF_PROTOCOLS["gowalla-m1"](other)  # the same lists as text
    train, test = ({user: items for user, *items in in_pairs(other / f"{split}.txt")} for split in ("train", "test"))
    scores = ease(train)
    recalls, gains = [], []
    for user, targets in test.items():
        if targets:
            of_user = scores(train[user])
            order = ranked(of_user, of_user.keys() - set(train[user]))
            recalls.append(recall(order, set(targets), 20))
            gains.append(ndcg(order, set(targets), 20))

    found = bench(recsys, name, given)

    assert figures(found) == pytest.approx({"recall@20": mean(recalls), "ndcg@20": mean(gains)})


def test_users_without_train_rows(recsys, tmp_path, monkeypatch):
    monkeypatch.setattr(given_splits, "_HELD_OUT_USERS", 100)  # instead of 10,000
    given = OF_PROTOCOLS["ml20m-liang"](tmp_path)
    with zipfile.ZipFile(given) as archive:
        ratings = list(csv.DictReader(io.StringIO(archive.read("ml-20m/ratings.csv").decode())))
    histories: dict[int, list[int]] = {}
    for row in ratings:
        if float(row["rating"]) > 3.5:
            histories.setdefault(int(row["userId"]), []).append(int(row["movieId"]))
    users = np.array([user for user in sorted(histories) if len(histories[user]) >= 5])
    np.random.seed(98765)
    users = users[np.random.permutation(users.size)]
    train = {user: histories[user] for user in users[:-200].tolist()}
    known = {item for items in train.values() for item in items}
    scores = ease(train)
    gains, recalls, excluded = [], {20: [], 50: []}, 0
    np.random.seed(98765)
    for user in sorted(users[-100:].tolist()):
        items = [item for item in histories[user] if item in known]
        if len(items) < 5:
            excluded += 1
            continue
        drawn = set(np.random.choice(len(items), size=int(0.2 * len(items)), replace=False).tolist())
        targets = {item for place, item in enumerate(items) if place in drawn}
        of_user = scores(item for item in items if item not in targets)
        order = ranked(of_user, of_user.keys() - (set(items) - targets))
        gains.append(ndcg(order, targets, 100))
        for k, values in recalls.items():
            values.append(len(targets & set(order[:k])) / min(k, len(targets)))

    found = bench(recsys, "ml20m-strong", given)

    assert excluded
    expected = {"ndcg@100": mean(gains)} | {f"capped_recall@{k}": mean(values) for k, values in recalls.items()}
    assert figures(found) == pytest.approx(expected, rel=1e-5)
    assert found["users"] == len(gains)


def test_a_default_given_explicitly_is_no_change_and_one_file_stands_for_its_folder(recsys, tmp_path):
    given = OF_PROTOCOLS["gowalla-m1"](tmp_path) / "train.txt"
    line = ("--json", "bench", "--protocol", "gowalla-m1", "--from-file", given, "bench.models=[popularity]")
    for overrides, changes in (
        (["train.seed=42", "evaluate.k=[20]"], "bench.models=[popularity]"),
        (["train.seed=42", "evaluate.k=[20,30]"], "bench.models=[popularity] evaluate.k=[20,30]"),
    ):
        ran = recsys(*line, *overrides)
        assert ran.code == 0, ran.err
        assert f'"changed from the protocol: {changes}"' in ran.out


@pytest.mark.parametrize("name", ["amazon-cds-m1", "amazon-electronics-m1"])
def test_other_files_of_the_same_kind(name, recsys, tmp_path):
    dataset = load(path_of(name)).dataset.name
    found = bench(recsys, name, {**SAMPLES, **OF_PROTOCOLS}[dataset](tmp_path))
    assert found["published"]["differences"]


def test_a_protocol_in_a_config_of_ones_own(recsys, tmp_path):
    given = SAMPLES["amazon-5core-beauty"](tmp_path)
    own = tmp_path / "own.yaml"
    text = path_of("s3-beauty").read_text().partition("protocol:")[0]
    rows = "\n".join(
        f"    - {{model: {model}, source: here, figures: {{ndcg@10: {value}}}}}"
        for model, value in (("equal", 0.0), ("better", 1.0))
    )
    own.write_text(f"{text}protocol:\n  paper: here\n  rows: {{test: 12}}\n  published:\n{rows}\n")
    line = (own, "bench.models=[popularity]", "evaluate.bootstrap=20")

    assert recsys("download", own, "--from-file", given).code == 0
    assert recsys("etl", own).code == 0
    shown = recsys("bench", *line, "--html", "page.html").out

    assert "The numbers of rows equal the published ones" in shown
    for text in (shown, (tmp_path / "page.html").read_text()):
        assert "popularity level by NDCG@10" in text
        assert "popularity below by NDCG@10" in text


def test_every_protocol_is_listed_with_its_figures(recsys):
    listed = recsys("--json", "ls", "protocols").json["protocols"]
    assert [row["name"] for row in listed] == list(registry.PROTOCOLS)
    for row in listed:
        bench = load(Path(row["config"])).bench
        assert bench is not None
        names = {model.name for model in bench.models}
        assert {"ease", "popularity"} <= names
        for one in row["published"]:
            assert one["source"]
            assert set(one["figures"]) <= set(row["metrics"])
            assert one["ours"] in {None, *names, *bench.labels}
    assert "0.1872" in recsys("ls", "protocols", "gowalla-m1").out


def test_mistakes_name_the_next_command(recsys):
    assert "did you mean s3-toys" in recsys("bench", "--protocol", "s3-toy").err
    assert "recsys bench own.yaml" in recsys("bench", "--protocol", "own.yaml").err
    assert "--from-file needs --protocol" in recsys("bench", "--from-file", "x").err
    assert "has a config of its own" in recsys("bench", "other.yaml", "--protocol", "s3-toys").err


BY_TIME = f"""
split: {{method: temporal, valid: 0.2, test: 0.2}}
model: {{name: ease, regularization: {PENALTY}}}
evaluate: {{k: [5], bootstrap: 20, max_ranking_users: null}}
"""


@pytest.fixture
def rows(tmp_path):
    """Distinct (user, item) pairs in order of time."""
    rng = np.random.default_rng(3)
    pairs = [(user, item) for user in range(50) for item in rng.permutation(40)[: rng.integers(8, 16)].tolist()]
    when = [user * 5 + rng.integers(0, 400) for user, _ in pairs]
    made = [(*pairs[row], 1_000 + place) for place, row in enumerate(np.argsort(when, kind="stable").tolist())]
    (tmp_path / "rows.csv").write_text("user,item,time\n" + "".join(f"{u},{i},{t}\n" for u, i, t in made))
    (tmp_path / "config.yaml").write_text(config_text("rows.csv", more=BY_TIME))
    return made


def test_targets_of_a_split_by_time(recsys, rows):
    valid, test = (int(round(len(rows) * share, 6)) for share in (0.6, 0.8))
    train: dict[int, list[int]] = {}
    before: dict[int, list[int]] = {}
    after: dict[int, list[int]] = {}
    for place, (user, item, _) in enumerate(rows):
        (before if place < test else after).setdefault(user, []).append(item)
        if place < valid:
            train.setdefault(user, []).append(item)
    scores = ease(train)

    def expected(first, last):
        values = []
        for user, items in after.items():
            place = len(items) + first if first < 0 else first
            history, targets = before.get(user, []) + items[:place], set(items[place:last])
            of_user = scores(history)
            values.append(ndcg(ranked(of_user, of_user.keys() - set(history)), targets, 5))
        return mean(values)

    assert recsys("etl", "config.yaml").code == 0
    assert recsys("train").code == 0
    values = {}
    for how in ("all", "first", "last", "random"):
        found = recsys("--json", "evaluate", f"evaluate.targets={how}").json
        assert found["counts"]["users_ranked"] == len(after)
        values[how] = found["ranking"]["model"]["ndcg@5"]["value"]
        assert found["counts"]["relevant"] == (len(rows) - test if how == "all" else len(after))
    assert all(user in before for user in after)  # nobody is ranked by popularity
    assert values["all"] == pytest.approx(expected(0, None))
    assert values["first"] == pytest.approx(expected(0, 1))
    assert values["last"] == pytest.approx(expected(-1, None))
    assert len(set(values.values())) == 4


def test_a_dataset_without_splits_needs_files(recsys, rows):
    assert rows
    found = recsys("etl", "config.yaml", "split={method: files}")
    assert found.code == 2
    assert "has no splits of its own" in found.err
    assert "set split.train to their file" in recsys("etl", "config.yaml", "split={method: files, test: x.csv}").err


SMALL = {
    "criteo-kaggle": ("features.ops.4.freq_threshold=1", "model.bottom_mlp=[8]", "model.top_mlp=[8]"),
    "criteo-1tb": ("features.ops.4.freq_threshold=1", "model.bottom_mlp=[8]", "model.top_mlp=[8]"),
}
"""Overrides of a config for a few rows."""


@pytest.mark.parametrize("name", SAMPLES)
def test_config_trains_from_the_publishers_files(name, recsys, tmp_path):
    given = tmp_path / "given"
    given.mkdir()
    config = f"configs/{name}.yaml"

    assert recsys("validate", config).code == 0
    fetched = recsys("--json", "download", config, "--from-file", SAMPLES[name](given))
    assert fetched.code == 0, fetched.err
    prepared = recsys("--json", "etl", config, *SMALL.get(name, ()))
    assert prepared.code == 0, prepared.err
    trained = recsys("--json", "train", config, *SMALL.get(name, ()), *_one_epoch(name))
    assert trained.code == 0, trained.err


def _one_epoch(name: str) -> tuple[str, ...]:
    return () if name == "hetrec-lastfm" else ("train.epochs=1", "train.batch_size=64")


@pytest.mark.parametrize(
    ("name", "size"),
    [("clicks", "rows=4_000"), ("sessions", "count=400"), ("impressions", "count=400")],
)
def test_synthetic_events_have_a_ceiling(name, size, recsys):
    config, options = f"configs/synthetic-{name}.yaml", (f"dataset.{size.replace('_', '')}", "train.epochs=1")

    ran = recsys("--json", "run", config, *options, "evaluate.bootstrap=20", "evaluate.max_ranking_users=100")

    assert ran.code == 0, ran.err
    ceiling = ran.json["download"]["facts"]["ceiling"]
    if name == "sessions":
        assert 0.6 < ceiling["hr@10"] < 0.9
    else:
        assert ran.json["evaluate"]["ceiling"]["auc"] == pytest.approx(ceiling["auc"])
        assert 0.75 < ceiling["auc"] < 0.9
