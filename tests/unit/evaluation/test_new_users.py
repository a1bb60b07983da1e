"""Users whom train does not know: told apart, described by what is known before the split, and ranked for by every system."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor

from recsys_cli.batch import Batch
from recsys_cli.config import EvaluateConfig, RunConfig
from recsys_cli.evaluation.loaded_run import make_context
from recsys_cli.evaluation.measure import measure
from recsys_cli.evaluation.names import IdNames
from recsys_cli.evaluation.new_users import NewUsers, SplitByUser
from recsys_cli.evaluation.ranking import FoldInScorer, TemporaryIds
from recsys_cli.evaluation.rankings import Rankings
from recsys_cli.evaluation.report.users import example_users
from recsys_cli.evaluation.result import Measurements
from recsys_cli.features.columns import USER_HASH
from recsys_cli.features.hashing import hash_values
from recsys_cli.features.schema import FIRST, UNSEEN
from recsys_cli.interactions import Interactions
from recsys_cli.models import build
from recsys_cli.models.model import Model, TrainingContext
from recsys_cli.stages.etl import etl
from recsys_cli.workspace import PreparedData, Workspace
from tests.rated import FEATURES

# In train, m1 has four rows, m2 three, m3 and m4 two and one. Ann and bob are known; eve comes with valid, and dan with test.
TRAIN = {"ann": "m1 m3", "bob": "m1 m2", "cem": "m1 m2", "fay": "m1 m2 m3 m4"}
VALID = {"ann": "m2", "eve": "m1 m3"}
TEST = {"ann": "m4", "bob": "m3", "eve": "m2 m4", "dan": "m1 m9"}
USERS = ["ann", "bob", "eve", "dan"]
CONFIG = EvaluateConfig(k=(1, 2), bootstrap=20, relevance="all")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workspace: Workspace) -> PreparedData:
    monkeypatch.chdir(tmp_path)
    for name, rows in {"train": TRAIN, "valid": VALID, "test": TEST}.items():
        lines = [f"{user},{item},5" for user, items in rows.items() for item in items.split()]
        Path(f"{name}.csv").write_text("\n".join(["userId,movieId,rating", *lines]) + "\n")
    files = {name: f"{name}.csv" for name in ("train", "valid", "test")}
    return etl(RunConfig.model_validate({
        "dataset": {"name": "files", "interactions": "train.csv"}, "features": FEATURES,
        "split": {"method": "files", **files},
    }), workspace).artifact  # fmt: skip


class Mirror(Model):
    """Likes what a user has met last of all, in the order of the ids; knows nothing else of a user."""

    scoring = "catalog"
    folds_in = True

    def set_context(self, context: TrainingContext) -> None:
        self.rows = context.interactions()
        assert self.rows.user_idx.max(initial=0) < 7  # ids of the data and no others

    def scores(self, users: Tensor, items: Tensor) -> Tensor:
        met = [set(self.rows.item_idx[self.rows.user_idx == user].tolist()) for user in users.tolist()]
        return torch.tensor([[float(item - 100 * (item in seen)) for item in items.tolist()] for seen in met])

    def score(self, batch: Batch) -> Tensor:
        return torch.zeros(batch.num_rows)


class Ids(Mirror):
    """Likes the rarest items, whoever the user is, and is said to know something of each user."""

    folds_in = False


def _ranked(data: PreparedData, model: Model) -> tuple[Measurements, Rankings, dict[str, dict[str, list[str]]]]:
    """Measure, and return beside it what each system recommends to whom, in raw values."""
    measured, rankings = measure(model.eval(), data, CONFIG)
    names = dict(zip(hash_values(pa.array(USERS)).tolist(), USERS, strict=True))
    items = ["", "", "", *pq.read_table(data.vocabulary("movieId"))["value"].to_pylist()]
    found = {
        system: {
            names[user]: [items[item] for item in row if item]
            for user, row in zip(rankings.user_hashes.tolist(), lists.tolist(), strict=True)
        }
        for system, lists in rankings.items.items()
    }
    return measured, rankings, found


def test_all_users_are_ranked_and_cold_start_users_have_their_history(world: PreparedData) -> None:
    measured, rankings, found = _ranked(world, Mirror())

    assert found["popularity"] == {"ann": ["m4"], "bob": ["m3", "m4"], "eve": ["m2", "m4"], "dan": ["m1", "m2"]}
    # The rarest item first, which has the highest id; what a user met is hidden, that of eve in valid, too.
    assert found["model"] == {"ann": ["m4"], "bob": ["m4", "m3"], "eve": ["m4", "m2"], "dan": ["m4", "m3"]}
    assert rankings.users.tolist() == [4, 5, UNSEEN, UNSEEN]  # fay is 3
    assert rankings.row_users.tolist() == [4, 5, UNSEEN, UNSEEN, UNSEEN, UNSEEN]
    counts = measured.counts
    assert (counts.users, counts.users_ranked, counts.users_new, counts.users_new_with_history) == (4, 4, 2, 1)
    assert (counts.unknown_user_rows, counts.relevant, counts.relevant_unreachable) == (4, 6, 1)
    assert measured.ranking["popularity"]["recall@2"].value == pytest.approx((1 + 1 + 1 + 1 / 2) / 4)
    assert "all 4 users, 2 of them cold-start" in measured.protocol.users
    assert "available for 1 of them" in measured.protocol.users
    assert not [note for note in measured.notes if "cold-start" in note]


def test_context_reuses_the_rows_of_the_evaluation(world: PreparedData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("recsys_cli.evaluation.loaded_run.read_observed")

    assert len(_ranked(world, model := Mirror())[1].users) == 4
    assert len(model.rows) == 2  # at last, what eve met


def test_cohort_of_cold_users_has_the_rankings_of_the_new(world: PreparedData) -> None:
    measured = _ranked(world, Mirror())[0]

    cohorts = {cohort.name: cohort for cohort in measured.cohorts}
    assert {name: (cohorts[name].rows, cohorts[name].users) for name in ("warm users", "cold users")} == {
        "warm users": (2, 2),
        "cold users": (4, 2),
    }
    at_1 = {name: cohorts[name].ranking["popularity"]["hr@1"].value for name in ("warm users", "cold users")}
    assert at_1 == {"warm users": 1, "cold users": 1}
    assert cohorts["cold users"].ranking["model"]["hr@1"].value == 0.5


def test_model_without_fold_in_ranks_for_cold_start_users_by_popularity(world: PreparedData) -> None:
    measured, _, found = _ranked(world, Ids())

    assert found["model"] == {"ann": ["m4"], "bob": ["m4", "m3"], "eve": ["m2", "m4"], "dan": ["m1", "m2"]}
    (note,) = [note for note in measured.notes if "cold-start" in note]
    assert note.startswith("2 of the 4 ranked users are cold-start users")


def test_scores_of_a_fitted_model_follow_from_the_history_of_a_new_user(world: PreparedData) -> None:
    model = build("item-knn", {"shrinkage": 0.0}, world.schema)
    train = SplitByUser.read(world, "test", EvaluateConfig(seed=0)).train
    model.fit(TrainingContext(lambda: train, dict))

    found = _ranked(world, model)[2]["model"]

    # Eve met m1 and m3. With m1, m2 has three users of three and four; m4, one of one and four, is nearer to m3 than m2 is.
    assert found["eve"] == ["m2", "m4"]
    assert found["dan"] == ["m1", "m2"]  # nothing is known of him: by popularity


def test_users_without_history_are_all_the_same_to_models_of_sequences(world: PreparedData) -> None:
    model = build("sasrec", {"embedding_dim": 8}, world.schema)
    times = np.zeros(4, np.int64)
    ids = np.array([3, 3, 4, 4], np.int32)
    model.set_context(TrainingContext(lambda: Interactions(ids, ids, np.ones(4, np.float32), None, times), dict))

    with torch.inference_mode():
        scores = model.eval().scores(torch.tensor([3, 5, UNSEEN]), torch.arange(3, 7))

    assert scores[0].abs().min() > 0
    assert (scores[1:] == 0).all()


def test_the_report_shows_new_users_with_their_history(world: PreparedData) -> None:
    rankings = _ranked(world, Mirror())[1]

    shown = example_users(rankings, world, IdNames(world), CONFIG)

    (eve,) = [user for user in shown if user.name == f"#{hash_values(pa.array(['eve']))[0]:016x}"[:9]]
    assert sorted(line.title for line in eve.history) == ["m1", "m3"]
    assert sorted(line.title for line in eve.ground_truth) == ["m2", "m4"]
    assert eve.rows.startswith("History: 2 interactions")
    assert {len(user.history) for user in shown} == {0, 2, 3}


def test_data_without_hashes_leaves_out_cold_start_users_with_a_note(world: PreparedData) -> None:
    for split in ("valid", "test"):
        for path in world.shards(split):
            pq.write_table(pq.read_table(path).drop_columns([USER_HASH]), path)

    measured, _, found = _ranked(world, Mirror())

    assert set(found["model"]) == {"ann", "bob"}
    assert "recsys etl --force" in measured.notes[0]
    assert "4 rows of cold-start users without distinct ids are predicted, but not ranked" in measured.protocol.users


def test_cold_start_users_get_temporary_ids_in_groups() -> None:
    """A world of 5 ids, 3 to 7, and 12 new users, 8 to 19, each with one interaction."""
    users = np.arange(8, 20)
    history = Interactions(users.astype(np.int32), (users * 10).astype(np.int32), np.ones(12, np.float32))
    histories: list[int] = []

    class Remembers(Model):
        folds_in = True

        def set_context(self, context: TrainingContext) -> None:
            rows = context.interactions()
            histories.append(len(rows))
            self.met = dict(zip(rows.user_idx.tolist(), rows.item_idx.tolist(), strict=True))

        def score(self, batch: Batch) -> Tensor:
            raise NotImplementedError

    model = Remembers()
    model.met = {7: 7}
    candidates = torch.arange(2)

    def make() -> Callable[[np.ndarray], Tensor]:
        met = dict(model.met)
        return lambda asked: torch.tensor([[float(met[user]), 0.0] for user in asked.tolist()])

    temporary = TemporaryIds(users, history, range(FIRST, 8), dict)
    known = TrainingContext(
        lambda: Interactions(np.array([7], np.int32), np.array([7], np.int32), np.ones(1, np.float32)), dict
    )
    scorer = FoldInScorer(model, make, NewUsers(8, users.astype(np.uint64)), temporary, known, candidates)

    scores = torch.cat([scorer(np.array(block)) for block in ([7, 8, 9], list(range(10, 16)), [16, 17, 18, 19])])

    assert scores[:, 0].tolist() == [7, *range(80, 200, 10)]
    assert histories == [5, 5, 2]
    assert torch.equal(scorer(np.array([7, 8, 9])), scores[:3])  # a worker repeats a block of a lost one
    assert histories == [5, 5, 2, 1, 5]


def test_rows_are_named_by_hash_and_hidden_again() -> None:
    ids = np.array([UNSEEN, 3, UNSEEN, 1, UNSEEN], np.int32)
    rows = Interactions(ids, ids, np.ones(5, np.float32))
    hashes = np.array([9, 0, 2**63 + 1, 0, 9], np.uint64)
    new = NewUsers.of(rows, hashes, first=10)
    others = Interactions(ids[:3], ids[:3], np.ones(3, np.float32))

    assert new.named(rows, hashes).user_idx.tolist() == [10, 3, 11, 1, 10]
    assert new.named(others, np.array([5, 9, 9], np.uint64)).user_idx.tolist() == [UNSEEN, 3, 10]  # 5 is nobody here
    assert new.hidden(new.named(rows, hashes)).user_idx.tolist() == ids.tolist()
    assert new.named(rows, None) is rows
    kept = np.array([3, UNSEEN, UNSEEN])
    assert new.ids(kept, np.array([77, 9, 2**63 + 1], np.uint64)).tolist() == [3, 10, 11]


def test_rankings_after_a_split_by_time_equal_figures_that_were_measured_elsewhere(
    tmp_path: Path, workspace: Workspace, shared_data: Path
) -> None:
    """The temporal split of ml-latest-small in shared/baselines/quality.md (P1), where 54 of 74 users of test are new."""
    with zipfile.ZipFile(shared_data / "ml-latest-small.zip") as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("ratings.csv")]
        ratings = pa.csv.read_csv(archive.open(name))
    ratings = ratings.sort_by([(column, "ascending") for column in ("timestamp", "userId", "movieId")])
    borders = [int(ratings.num_rows * share) for share in (0, 0.8, 0.9, 1)]
    files = {split: str(tmp_path / f"{split}.parquet") for split in ("train", "valid", "test")}
    for path, first, last in zip(files.values(), borders[:-1], borders[1:], strict=True):
        pq.write_table(ratings.slice(first, last - first), path)
    ops = [FEATURES["ops"][0], {**FEATURES["ops"][1], "expression": "rating > 0"}]
    data = etl(RunConfig.model_validate({
        "dataset": {"name": "files", "interactions": files["train"]}, "split": {"method": "files", **files},
        "features": {**FEATURES, "ops": ops},
    }), workspace).artifact  # fmt: skip
    model = build("ease", {"regularization": 5_000.0}, data.schema)
    model.fit(make_context(data, "train"))

    measured, _ = measure(model.eval(), data, EvaluateConfig(k=(10,), bootstrap=10, relevance="all"))

    counts = measured.counts
    assert (counts.users_ranked, counts.users_new, counts.users_new_with_history) == (74, 54, 7)
    names = ("hr@10", "recall@10", "ndcg@10", "mrr@10")
    found = {system: [round(figures[m].value, 4) for m in names] for system, figures in measured.ranking.items()}
    assert found["popularity"] == [0.7027, 0.0520, 0.3250, 0.5192]
    assert found["model"] == [0.7568, 0.0536, 0.3327, 0.5288]
