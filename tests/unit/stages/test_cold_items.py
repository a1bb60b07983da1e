"""Unseen items by the projection of `model.cold_items`, and their slots: where content decides, and where it is chance."""

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsys_cli.config import RunConfig
from recsys_cli.evaluation import Evaluation
from recsys_cli.serving.bundle import load_bundle
from recsys_cli.serving.every_user import recommend_to_all
from recsys_cli.serving.item_upserts import ItemUpserts, ItemValues
from recsys_cli.serving.query import Query
from recsys_cli.serving.recommender import Recommender
from recsys_cli.stages.etl import etl
from recsys_cli.stages.evaluate import evaluate
from recsys_cli.stages.export import export
from recsys_cli.stages.train import train
from recsys_cli.workspace import Workspace

GROUPS, USERS, OLD, NEW, WIDTH, SLOTS = 4, 120, 120, 40, 8, 5
OPTIONS: dict[str, dict[str, Any]] = {
    "sasrec": {"epochs": 12}, "gru4rec": {"epochs": 12}, "hstu": {"epochs": 12}, "mf": {"epochs": 12},
    "lightgcn": {"epochs": 12}, "two-tower": {"epochs": 12},
}  # fmt: skip
FIGURES = re.compile(r"(\S+) of (unseen|other) targets (\S+), \w+ (\S+), (\S+) \[(\S+), (\S+)\] \((\S+) users\)")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Users like the items of their group; items from OLD on are in test only. One table tells the group, one is noise."""
    folder = tmp_path_factory.mktemp("cold")
    rng = np.random.default_rng(1)
    rows: dict[str, list[tuple[int, int, int, int]]] = {"train": [], "test": []}
    for user in range(USERS):
        old = user % GROUPS + GROUPS * rng.permutation(OLD // GROUPS)[:14]
        new = OLD + user % GROUPS + GROUPS * rng.permutation(NEW // GROUPS)[:3]
        for time, item in enumerate(old):
            rows["train" if time < 12 else "test"].append((user, int(item), 1, time))
        rows["test"] += [(user, int(item), 1, 20) for item in new]
    for name, part in rows.items():
        columns = dict(zip(("user", "item", "label", "time"), zip(*part, strict=True), strict=True))
        pq.write_table(pa.table({key: np.array(values) for key, values in columns.items()}), folder / f"{name}.parquet")
    centers, noise = rng.normal(size=(GROUPS, WIDTH)), rng.normal(size=(OLD + NEW, WIDTH))
    told = centers[np.arange(OLD + NEW) % GROUPS] + 0.5 * noise
    for name, vectors in (("told", told), ("chance", noise)):
        fixed = pa.FixedSizeListArray.from_arrays(pa.array(vectors.astype(np.float32).ravel()), WIDTH)
        pq.write_table(pa.table({"item": np.arange(OLD + NEW), "vector": fixed}), folder / f"{name}.parquet")
    return folder


@pytest.fixture
def workspace(world, monkeypatch):
    """One workspace for all tests, beside the files: what is prepared and trained already is found."""
    monkeypatch.chdir(world)
    return Workspace(world / "workspace")


def config(model: str, table: str = "told", slots: int = 0, **options: Any) -> RunConfig:
    ops = [
        {"op": "JoinExternal", "table": "items", "on": "item", "columns": ["vector"]},
        {"op": "ValueCount", "columns": ["vector"]},
        {"op": "Categorify", "columns": ["user", "item"]},
    ]
    return RunConfig.model_validate({
        "dataset": {"name": "files", "interactions": "train.parquet", "tables": {"items": f"{table}.parquet"}},
        "split": {"method": "files", "train": "train.parquet", "test": "test.parquet"},
        "features": {"user": "user", "item": "item", "label": "label", "timestamp": "time", "ops": ops},
        "model": {"name": model, "cold_items": ["vector"], **options},
        "train": {"device": "cpu", "early_stopping": None, "seed": 3, **OPTIONS[model]},
        "evaluate": {"bootstrap": 200},
        "recommend": {"cold_slots": slots},
    })  # fmt: skip


def trained(workspace, *args, **options):
    chosen = config(*args, **options)
    etl(chosen, workspace)
    return train(chosen, workspace).artifact


def figures(workspace, run, slots):
    """Return recall of unseen and NDCG of other targets: with slots, without or by chance, gain and its interval."""
    evaluate(run, workspace, cold_slots=slots)
    (note,) = [one for one in Evaluation.read(run.evaluation).notes if one.startswith("recommend.cold_slots")]
    found = {groups[1]: groups for groups in FIGURES.findall(note)}
    assert [found["unseen"][0], found["other"][0]] == ["recall@10", "ndcg@10"]
    return {name: [float(one) for one in groups[2:7]] for name, groups in found.items()}


@pytest.mark.parametrize("model", OPTIONS)
def test_content_that_decides_finds_unseen_items_by_each_model(workspace, model):
    found = figures(workspace, trained(workspace, model), SLOTS)
    with_slots, chance, gain, low, high = found["unseen"]
    assert chance > 0.1  # 5 of 40 at least
    assert with_slots > 0.35  # 5 of the 10 of the own group hold half of the targets; of all 40 by chance, .125
    assert gain == pytest.approx(with_slots - chance, abs=2e-4)
    assert 0 < low <= gain <= high
    assert found["other"][0] <= found["other"][1]


@pytest.mark.parametrize("model", ["sasrec", "mf"])
def test_content_of_chance_finds_no_more_than_chance(workspace, model):
    *_, low, high = figures(workspace, trained(workspace, model, "chance"), SLOTS)["unseen"]
    assert low <= 0 <= high


def test_figures_are_those_of_the_lists_and_an_override_needs_no_training(workspace):
    run = trained(workspace, "mf", slots=0)
    assert evaluate(run, workspace).up_to_date in {True, False}
    assert not [one for one in Evaluation.read(run.evaluation).notes if "cold_slots" in one]
    found = figures(workspace, run, SLOTS)
    assert not evaluate(run, workspace, cold_slots=1).up_to_date
    served = trained(workspace, "mf", slots=SLOTS)
    assert served.folder != run.folder
    lists = Recommender.of_run(served, workspace).recommend([Query(user=user) for user in range(USERS)])
    test = pq.read_table("test.parquet").to_pydict()
    targets = {(user, item) for user, item in zip(test["user"], test["item"], strict=True) if item >= OLD}
    hits = sum((user, one.item.id) in targets for user, answer in enumerate(lists) for one in answer.items)
    assert hits / len(targets) == pytest.approx(found["unseen"][0], abs=1e-4)


def test_slots_without_effect_are_said(workspace):
    run = trained(workspace, "mf", cold_items=None)
    evaluate(run, workspace, cold_slots=1)
    assert any("cold_slots has no effect" in note for note in Evaluation.read(run.evaluation).notes)


@pytest.mark.parametrize("model", ["sasrec", "two-tower"])
def test_every_door_serves_the_same_lists_with_slots_at_the_end(workspace, model):
    run, plain = trained(workspace, model, slots=2), trained(workspace, model)
    recommender, without = Recommender.of_run(run, workspace), Recommender.of_run(plain, workspace)
    queries = [Query(user=user, k=6) for user in range(8)]
    lists = [[one.item.id for one in answer.items] for answer in recommender.recommend(queries)]
    for answer, before in zip(recommender.recommend(queries), without.recommend(queries), strict=True):
        ids, scores = [one.item.id for one in answer.items], [one.score for one in answer.items]
        assert sum(item >= OLD for item in ids) >= 2
        assert scores == sorted(scores, reverse=True)
        assert ids[:4] == [one.item.id for one in before.items][:4]
    bundle = load_bundle(export(run, workspace).folder)
    assert [[one.item.id for one in answer.items] for answer in bundle.recommend(queries)] == lists
    users = recommender.served.users.encode(list(range(8)))
    blocks = list(recommend_to_all(recommender, users, k=6))
    items = np.concatenate([block.items for block in blocks])
    ids = recommender.served.items.values.take(pa.array(recommender.served.items.positions_of(items))).to_pylist()
    assert ids == [item for one in lists for item in one]
    mixed = recommender.recommend([Query(user=0, k=3), Query(user=0, k=6, exclude=lists[0][-1:])])
    assert [sum(one.item.id >= OLD for one in answer.items) >= 2 for answer in mixed] == [True, True]
    assert lists[0][-1] not in [one.item.id for one in mixed[1].items]


def test_an_item_given_to_the_server_is_ranked_by_its_projection(workspace):
    recommender = Recommender.of_run(trained(workspace, "mf", slots=1), workspace)
    vectors = pq.read_table("told.parquet")["vector"].to_pylist()
    twin = recommender.recommend([Query(user=5, k=5)])[0].items[-1].item.id
    assert twin >= OLD
    upserts = ItemUpserts(recommender)
    assert upserts.why_not is None
    added = upserts.recommender({"999": ItemValues(999, {"vector": vectors[twin]})})
    found = {one.item.id: one.score for one in added.recommend([Query(user=5, k=500)])[0].items}
    assert found[999] == pytest.approx(found[twin], abs=1e-5)
