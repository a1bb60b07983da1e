"""Cold-start users and items, scored by features of a joined table, on planted data."""

import shutil
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsys_cli.batch import Ragged
from recsys_cli.config import EvaluateConfig, RunConfig
from recsys_cli.etl.report.facts import Facts
from recsys_cli.evaluation import Evaluation
from recsys_cli.evaluation.rankings import Rankings
from recsys_cli.evaluation.result import Counts
from recsys_cli.evaluation.task import cold_items_sentence, cut_off_note
from recsys_cli.features.schema import UNSEEN, Role
from recsys_cli.loader import Loader
from recsys_cli.loader.records import layout_of_split
from recsys_cli.loader.streaming import Streaming
from recsys_cli.stages.apply import apply
from recsys_cli.stages.download import download
from recsys_cli.stages.etl import etl
from recsys_cli.stages.evaluate import evaluate
from recsys_cli.stages.inspect import inspect_item, inspect_user
from recsys_cli.stages.train import train
from recsys_cli.workspace import PreparedData, TrainedRun, Workspace
from tests.engines import every_engine

GROUPS, USERS, ITEMS, EACH = 4, 240, 160, 30
OLD_USERS, OLD_ITEMS = 160, 100
"""Users and items below these numbers are in train; test has all of them."""
STEPS = {"epochs": 12, "batch_size": 128, "learning_rate": 0.01}
TRAIN: dict[str, dict[str, Any]] = {"fm": STEPS, "mlp": STEPS, "two-tower": STEPS, "lightgbm": {}, "ease": {}}


def group_of_user(user: np.ndarray) -> np.ndarray:
    return (user * 7 + 3) % 11 % GROUPS


def group_of_item(item: np.ndarray) -> np.ndarray:
    return (item * 5 + 1) % 13 % GROUPS


def likes(user: np.ndarray, item: np.ndarray) -> np.ndarray:
    return (group_of_user(user) == group_of_item(item)).astype(np.int64)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Labels follow from town and genre; train has a part of the users and items."""
    folder = tmp_path_factory.mktemp("cold")
    rng = np.random.default_rng(5)
    for name, users, items in (("train", OLD_USERS, OLD_ITEMS), ("test", USERS, ITEMS)):
        user = np.repeat(np.arange(users), EACH)
        item = np.argsort(rng.random((users, items)), axis=1)[:, :EACH].ravel()
        order = rng.permutation(len(user))
        columns = {"user": user[order], "item": item[order], "label": likes(user, item)[order]}
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")
    users, items = np.arange(USERS), np.arange(ITEMS + 20)
    people = pa.table({"user": users, "town": [f"t{group}" for group in group_of_user(users)]})
    things = pa.table({"item": items, "genres": [[f"g{group}", "all"] for group in group_of_item(items)]})
    pq.write_table(people, folder / "people.parquet")
    pq.write_table(
        things.append_column("title", pa.array([f"Thing {item}" for item in items])), folder / "things.parquet"
    )
    return folder


@pytest.fixture
def workspace(world, monkeypatch):
    """One workspace for all tests, beside the files: what is prepared and trained already is found."""
    monkeypatch.chdir(world)
    return Workspace(world / "workspace")


def config(*, engine: str = "polars", layout: str = "star", model: str = "fm", **options: Any) -> RunConfig:
    return RunConfig.model_validate({
        "dataset": {
            "name": "files", "interactions": "train.parquet",
            "tables": {"people": "people.parquet", "things": "things.parquet"},
        },
        "split": {"method": "files", "train": "train.parquet", "test": "test.parquet"},
        "features": {
            "user": "user", "item": "item", "label": "label",
            "ops": [
                {"op": "JoinExternal", "table": "people", "on": "user", "columns": ["town"]},
                {"op": "JoinExternal", "table": "things", "on": "item", "columns": ["genres"]},
                {"op": "Categorify", "columns": ["user", "item"], **options},
                {"op": "Categorify", "columns": ["town", "genres"]},
                {"op": "LambdaOp", "expression": "label == 1", "output": "label", "dtype": "int8"},
            ],
        },
        "etl": {"engine": engine, "layout": layout, "shard_rows": 2_000},
        "model": {"name": model},
        "train": {"device": "cpu", "precision": "fp32", **TRAIN[model]},
        "evaluate": {"k": [40], "bootstrap": 20},
    })  # fmt: skip


def prepared(wanted: RunConfig, workspace: Workspace) -> PreparedData:
    download(wanted.dataset, workspace)
    return etl(wanted, workspace).artifact


def measured(wanted: RunConfig, workspace: Workspace) -> tuple[TrainedRun, Evaluation]:
    prepared(wanted, workspace)
    run = train(wanted, workspace).artifact
    evaluate(run, workspace)
    return run, Evaluation.read(run.evaluation)


def cold_auc(found: Evaluation, name: str) -> float:
    cohort = next(cohort for cohort in found.cohorts if cohort.name == name)
    value = cohort.pointwise["model"]["auc"].value
    assert value is not None
    return value


def content(loader: Loader) -> list[tuple[Any, ...]]:
    """Return the rows of a loader: label, town, genres, user and item."""
    rows: list[tuple[Any, ...]] = []
    for batch in loader:
        genres = batch.features["genres"]
        assert isinstance(genres, Ragged)
        starts = genres.offsets.tolist()
        lists = [tuple(genres.values[a:b].tolist()) for a, b in pairwise(starts)]
        ids = [batch.features[name].tolist() for name in ("town", "user", "item")]  # type: ignore[union-attr]
        rows += zip(batch.labels["label"].tolist(), ids[0], lists, *ids[1:], strict=True)
    return rows


@every_engine
@pytest.mark.parametrize("layout", ["star", "flat"])
def test_rows_of_what_train_does_not_know_are_told_by_features(name, layout, workspace, tmp_path):
    wanted = config(engine=name, layout=layout)
    run, found = measured(wanted, workspace)
    data = workspace.data_of(run)
    assert cold_auc(found, "cold users") > 0.9
    assert cold_auc(found, "cold items") > 0.9

    # New rows, prepared with the plan: the same features, so the same scores.
    new = pq.read_table(apply(str(data.folder), ["test.parquet"], workspace, output=tmp_path / "new.parquet").output)
    assert not [column for column in new.column_names if column.startswith("\x01")]
    star = config(engine="polars", layout="flat")
    flat = pa.concat_tables([pq.read_table(path) for path in prepared(star, workspace).shards("test")])
    assert new.to_pydict() == flat.select(new.column_names).to_pydict()
    assert 1 not in new["town"].to_pylist(), "no town is missing"


def test_layouts_and_ways_to_load_give_the_same_rows(workspace):
    star, flat = (prepared(config(layout=layout), workspace) for layout in ("star", "flat"))
    for split in ("train", "test"):
        assert content(Loader(star, split, batch_size=1_000)) == content(Loader(flat, split, batch_size=1_000))

    streamed = Loader(star, "test", batch_size=1_000)
    layout, groups = layout_of_split(star, "test")
    streamed._source = Streaming(layout, groups, budget=3 * layout.num_bytes(groups[:1]), seed=None)
    assert content(streamed) == content(Loader(star, "test", batch_size=1_000))

    of_train = pq.read_schema(star.shards("train")[0]).names
    assert not [column for column in of_train if column.startswith("\x01")], "train has no key that it does not know"


@pytest.mark.parametrize("options", [{"freq_threshold": 47}, {"freq_threshold": 47, "num_buckets": 5}])
def test_infrequent_ids_keep_their_features_and_are_counted_as_if_joined(options, workspace):
    data, everything = prepared(config(**options), workspace), prepared(config(), workspace)
    for name in ("town", "genres"):
        assert pq.read_table(data.vocabulary(name)) == pq.read_table(everything.vocabulary(name))
    for split in ("train", "test"):
        found, expected = (content(Loader(one, split, batch_size=1_000)) for one in (data, everything))
        assert [row[:3] for row in found] == [row[:3] for row in expected]
        own = data.schema.only(Role.ITEM).own_ids
        shared = {row[4] for row in found if row[4] not in own}
        assert shared == ({UNSEEN} if "num_buckets" not in options else set(range(own.stop, own.stop + 5)))


def test_the_report_counts_features_of_keys_that_train_does_not_know(world, tmp_path, monkeypatch):
    shutil.copytree(world, tmp_path / "world", ignore=shutil.ignore_patterns("workspace"))
    monkeypatch.chdir(tmp_path / "world")
    workspace = Workspace(tmp_path / "workspace")
    pq.write_table(pq.read_table("people.parquet").slice(0, USERS - 20), "people.parquet")
    for layout in ("star", "flat"):
        facts = Facts.model_validate_json(prepared(config(layout=layout), workspace).facts.read_text())
        town = facts.missing["town"]
        assert (town["train"].null, town["test"].null, town["test"].unseen) == (0, 20 * EACH, 0)
        assert town["test"].values == USERS * EACH


def test_new_items_are_ranked_recommended_and_named(workspace):
    run, found = measured(config(), workspace)
    kept = Rankings.read(run.rankings)
    first = int(workspace.data_of(run).schema.only(Role.ITEM).cardinality or 0)
    cohort = next(cohort for cohort in found.cohorts if cohort.name == "cold items")
    assert found.counts.candidates == ITEMS + 20
    assert (found.counts.candidates_cold, found.counts.relevant_unreachable) == (ITEMS + 20 - OLD_ITEMS, 0)
    words = f"{OLD_ITEMS:,} items with a train row and {ITEMS + 20 - OLD_ITEMS:,} cold items of the item table"
    assert found.counts.candidates_in_words == words
    assert words in found.protocol.candidates
    assert (kept.items["model"] >= first).mean() > 0.25
    assert not (kept.items["popularity"] >= first).any()
    assert cohort.ranking["model"]["recall@40"].value > 0.8 > 0.1 > cohort.ranking["popularity"]["recall@40"].value

    people = next(cohort for cohort in found.cohorts if cohort.name == "cold users")
    assert people.ranking["model"]["recall@40"].value > 0.8 > people.ranking["popularity"]["recall@40"].value
    assert any("by features of the user table" in note for note in found.notes)

    asked = inspect_user(run, workspace, "3", k=40)
    new = [one for one in asked["recommended"] if int(one["item"]) >= OLD_ITEMS]
    assert new
    assert all(one["title"] == f"Thing {one['item']}" for one in new)
    liked = [likes(np.array(3), np.array(int(one["item"]))) for one in new[:5]]
    assert all(liked)
    thing = inspect_item(run, workspace, f"Thing {ITEMS - 1}", k=5)
    assert thing["rows"]["train"] == 0 < thing["rows"]["test"]
    assert thing["features"]["genres"]


def test_a_model_of_ids_alone_puts_new_items_last(workspace):
    run, found = measured(config(model="ease"), workspace)
    first = int(workspace.data_of(run).schema.only(Role.ITEM).cardinality or 0)
    assert not (Rankings.read(run.rankings).items["model"] >= first).any()
    assert found.counts.candidates_cold == ITEMS + 20 - OLD_ITEMS
    seen = {(row["user"], row["item"]) for row in pq.read_table("train.parquet").to_pylist()}
    rows = [row for row in pq.read_table("test.parquet").to_pylist() if row["label"]]
    truth = [(row["user"], row["item"]) for row in rows if (row["user"], row["item"]) not in seen]
    known = {user for user, item in truth if item < OLD_ITEMS}
    assert found.counts.relevant_cold == sum(item >= OLD_ITEMS for _, item in truth)
    assert found.counts.users_only_cold == len({user for user, _ in truth} - known)
    assert not any("only cold items" in sentence for sentence in found.verdict)  # they are few
    assert any(note.startswith("Cut-off 40 is 22% of the 180 items") for note in found.notes)


@pytest.mark.parametrize(
    ("by_content", "candidates_cold", "words"),
    [
        (False, 5, "model.name=two-tower ranks them by the features of the item table; split.method=leave-last-out"),
        (False, 0, "model.name=two-tower ranks them by features, once a table of items is joined"),
        (True, 5, "the model ranks them by their features, other systems rank them last."),
    ],
)
def test_mostly_cold_items_are_said_with_a_remedy(by_content, candidates_cold, words):
    names = ("rows", "positive", "train_rows", "unknown_user_rows", "unknown_item_rows", "users", "users_eligible",
             "users_without_relevant", "users_without_recommendations", "relevant", "relevant_unreachable")  # fmt: skip
    counts = Counts(
        **dict.fromkeys(names, 0), users_ranked=336, users_only_cold=294, candidates=40, candidates_cold=candidates_cold
    )
    said = cold_items_sentence(counts, by_content=by_content)
    assert said is not None
    assert said.startswith("294 of 336 ranked users (87.5 %) have only cold items in their ground truth")
    assert words in said
    few = counts.model_copy(update={"users_only_cold": 67})
    assert cold_items_sentence(few, by_content=by_content) is None


@pytest.mark.parametrize(
    ("k", "candidates", "words"),
    [
        (
            (10, 5),
            12,
            "Cut-off 5 is 42% of the 12 items: a random order has about this recall@5, so its metrics say little; set",
        ),
        ((10,), 4, "Cut-off 10 is 100% of the 4 items"),
        ((10,), 51, None),
    ],
)
def test_a_cut_off_of_a_large_part_of_the_catalog_is_noted(k, candidates, words):
    note = cut_off_note(EvaluateConfig(k=k), candidates)
    assert (note is None) if words is None else str(note).startswith(words)


@pytest.mark.parametrize("model", ["two-tower", "lightgbm", "mlp"])
def test_models_that_look_at_features_know_new_items(model, workspace):
    pytest.importorskip("lightgbm" if model == "lightgbm" else "torch")
    wanted = config(model=model)
    _, found = measured(wanted, workspace)
    assert cold_auc(found, "cold items") > 0.8
    if model != "lightgbm":  # which prefers items that it knows people to like
        cohort = next(cohort for cohort in found.cohorts if cohort.name == "cold items")
        assert cohort.ranking["model"]["recall@40"].value > 0.8 > 0.1 > cohort.ranking["popularity"]["recall@40"].value
