"""After a split by user: users are described by what came first, to find the rest."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recsys_cli.config import EvaluateConfig
from recsys_cli.evaluation.loaded_run import make_context
from recsys_cli.evaluation.measure import measure
from recsys_cli.evaluation.new_users import SplitByUser, fold_in
from recsys_cli.evaluation.task import EvaluationTask
from recsys_cli.features.columns import USER_HASH
from recsys_cli.features.schema import UNSEEN
from recsys_cli.interactions import Interactions
from recsys_cli.loader.interactions import read_user_hashes
from recsys_cli.models import build
from recsys_cli.workspace import PreparedData

HASHES = np.arange(100, 160, dtype=np.uint64)


def _rows(users: list[int], *, times: bool = True) -> Interactions:
    """Rows of some users, each of another item; later rows come first."""
    size = len(users)
    when = np.arange(size, 0, -1) if times else None
    items = np.arange(3, size + 3, dtype=np.int32)
    return Interactions(np.array(users, np.int32), items, np.ones(size, np.float32), None, when)


def _items(rows: Interactions, user: int) -> set[int]:
    return set(rows.item_idx[rows.user_idx == user].tolist())


def test_history_is_the_first_four_fifths_by_time_and_the_rest_is_to_find() -> None:
    history, rows = fold_in(_rows([7] * 10 + [5] * 1 + [9] * 4), users=HASHES, items=HASHES, seed=0)

    assert _items(rows, 5) == {13}  # one row alone is to be found
    assert _items(history, 5) == set()
    assert _items(rows, 7) == {3, 4}  # the last by time stand first in the file
    assert _items(history, 7) == set(range(5, 13))
    assert (len(_items(rows, 9)), len(_items(history, 9))) == (1, 3)
    assert history.times is not None
    assert history.times.min() > 0


def test_rows_without_times_are_split_by_a_hash_of_seed_and_raw_ids() -> None:
    rows = _rows([7] * 20, times=False)
    others = HASHES + np.uint64(1)

    once, again, other = (fold_in(rows, users=HASHES, items=HASHES, seed=seed)[1] for seed in (0, 0, 1))
    somebody = fold_in(rows, users=others, items=HASHES, seed=0)[1]

    assert len(once) == 4
    assert _items(once, 7) == _items(again, 7)
    assert _items(other, 7) != _items(once, 7) != _items(somebody, 7)


def test_nothing_is_made_of_no_rows() -> None:
    history, rows = fold_in(_rows([]), users=HASHES, items=HASHES, seed=0)

    assert (len(rows), len(history)) == (0, 0)


def _split_by_user(data: PreparedData) -> PreparedData:
    """Take their ids from the users of valid, as a split by user would have done."""
    for path in data.shards("valid"):
        rows = pq.read_table(path)
        users = rows["userId"].to_numpy()
        unseen = pa.array(np.full(len(users), UNSEEN, np.int32))
        rows = rows.set_column(rows.column_names.index("userId"), "userId", unseen)
        pq.write_table(rows.append_column(USER_HASH, pa.array(users.astype(np.uint64))), path)
    return data


CONFIG = EvaluateConfig(k=(1, 5), bootstrap=20, relevance="all")


def test_model_with_fold_in_ranks_for_cold_start_users(make_prepared) -> None:
    data = _split_by_user(make_prepared(users=30, items=40, rows=1_200))
    model = build("item-knn", {}, data.schema)
    model.fit(make_context(data, "train"))

    measured, rankings = measure(model.eval(), data, CONFIG)

    assert measured.counts.users_folded_in == len(set(_hashes(data)))
    assert "the first 80% of a user's rows are the fold-in history" in measured.protocol.users
    assert set(rankings.users.tolist()) == {UNSEEN}
    assert set(rankings.user_hashes.tolist()) <= set(_hashes(data))
    # On the checkerboard users meet everything, so there is little to find; but what was met before is not recommended.
    asked = EvaluationTask.of(SplitByUser.read(data, "valid", CONFIG), "valid", CONFIG)
    for number, who in enumerate(asked.held_out.user_idx):
        met = set(asked.by_user.history.item_idx[asked.by_user.history.user_idx == who].tolist())
        assert met
        assert not met & set(rankings.items["model"][number].tolist())


def test_model_without_fold_in_has_a_note_instead_of_a_ranking(make_prepared) -> None:
    data = _split_by_user(make_prepared())
    model = build("mlp", {}, data.schema)

    measured, rankings = measure(model.eval(), data, CONFIG)

    assert measured.ranking == {}
    assert "Models with fold-in rank for cold-start users" in measured.notes[0]
    assert len(rankings.users) == 0


def _hashes(data: PreparedData) -> list[int]:
    return read_user_hashes(data, "valid").tolist()


def test_data_of_a_version_without_hashes_has_none(make_prepared) -> None:
    data = make_prepared()

    assert read_user_hashes(data, "valid") is None
    assert read_user_hashes(data, "test") is None
