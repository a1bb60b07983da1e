"""What was ranked is read back as it was written, and what it answers has one name whatever the ids are."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file

from recsys_cli.config import EvaluateConfig
from recsys_cli.errors import DataError
from recsys_cli.evaluation.held_out import value_hashes
from recsys_cli.evaluation.new_users import SplitByUser
from recsys_cli.evaluation.rankings import Rankings
from recsys_cli.evaluation.result import Protocol
from recsys_cli.evaluation.task import EvaluationTask
from recsys_cli.workspace import PreparedData


def _rankings() -> Rankings:
    return Rankings(
        split="test",
        k=(1, 2),
        protocol={"seen": "nothing"},
        problem="abc",
        rows="def",
        users=np.array([3, 9]),
        user_hashes=np.array([2**63 + 1, 5], np.uint64),
        num_relevant=np.array([1, 4]),
        items={"model": np.array([[7, 3], [4, 0]], np.int32), "item-knn": np.zeros((2, 2), np.int32)},
        hits={"model": np.array([[True, False], [False, False]]), "item-knn": np.zeros((2, 2), bool)},
        sampled=np.empty((2, 0), np.int32),
        logits=np.array([0.5, -1], np.float32),
        labels=np.array([1, 0], np.uint8),
        row_users=np.array([3, 9], np.int32),
        row_items=np.array([7, 2], np.int32),
        row_clusters=np.array([0, 1], np.int32),
    )


def test_rankings_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    before = _rankings()
    before.save(tmp_path / "rankings.safetensors")

    after = Rankings.read(tmp_path / "rankings.safetensors")

    assert after.systems == ("model", "item-knn")
    assert (after.split, after.k, after.protocol, after.problem, after.rows) == (
        "test", (1, 2), {"seen": "nothing"}, "abc", "def",
    )  # fmt: skip
    for name in (
        "users",
        "user_hashes",
        "num_relevant",
        "sampled",
        "logits",
        "labels",
        "row_users",
        "row_items",
        "row_clusters",
    ):
        assert getattr(after, name).dtype == getattr(before, name).dtype
        assert np.array_equal(getattr(after, name), getattr(before, name))
    for system in before.systems:
        assert np.array_equal(after.items[system], before.items[system])
        assert np.array_equal(after.hits[system], before.hits[system])
        assert after.hits[system].dtype == bool
    assert [path.name for path in tmp_path.iterdir()] == ["rankings.safetensors"]


def test_empty_rankings_are_read_back(tmp_path: Path) -> None:
    nobody = np.empty(0, np.int64)
    empty = replace(
        _rankings(), users=nobody, user_hashes=nobody.astype(np.uint64), num_relevant=nobody, items={}, hits={}
    )
    empty.save(tmp_path / "rankings.safetensors")

    assert Rankings.read(tmp_path / "rankings.safetensors").systems == ()


def test_rankings_that_are_missing_broken_or_of_another_version_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "rankings.safetensors"
    with pytest.raises(DataError, match="cannot read rankings"):
        Rankings.read(path)
    path.write_bytes(b"something else")
    with pytest.raises(DataError, match="cannot read rankings"):
        Rankings.read(path)
    save_file({"users": np.zeros(1)}, path, metadata={"recsys": json.dumps({"version": 0})})
    with pytest.raises(DataError, match="version 0"):
        Rankings.read(path)


CONFIG = EvaluateConfig(k=(1, 5))
SAMPLE = EvaluateConfig(k=(1, 5), max_ranking_users=5)


def _asked(data: PreparedData, config: EvaluateConfig = CONFIG) -> EvaluationTask:
    return EvaluationTask.of(SplitByUser.read(data, "valid", config), "valid", config)


def _names(asked: EvaluationTask, config: EvaluateConfig = CONFIG) -> tuple[str, str]:
    protocol = Protocol(split="", candidates="", seen="", relevant="", users="", intervals="")
    answers = asked.rankings({}, np.zeros(len(asked.by_user.rows), np.float32), protocol, config)
    return answers.problem, answers.rows


def _give_users_other_ids(data: PreparedData) -> None:
    """Turn the vocabulary of prepared data round, and the ids with it."""
    vocabulary = pq.read_table(data.vocabulary("userId"))
    size = len(vocabulary)
    pq.write_table(vocabulary.take(pa.array(np.arange(size)[::-1])), data.vocabulary("userId"))
    for path in (*data.shards("train"), *data.shards("valid")):
        rows = pq.read_table(path)
        ids = pa.array((size + 5 - rows["userId"].to_numpy()).astype(np.int32))
        pq.write_table(rows.set_column(rows.column_names.index("userId"), "userId", ids), path)


@pytest.mark.parametrize("config", [CONFIG, SAMPLE], ids=["all users", "a sample"])
def test_problem_is_the_same_for_other_ids_of_the_same_values(make_prepared, config: EvaluateConfig) -> None:
    data = make_prepared()
    before = _asked(data, config)
    names = _names(before, config)

    _give_users_other_ids(data)
    after = _asked(data, config)

    assert _names(after, config) == names
    users, others = (asked.by_user.users[asked.held_out.user_idx].tolist() for asked in (before, after))
    assert users != others
    assert sorted(users) == sorted(others)


def test_sampled_candidates_are_the_same_values_whatever_their_ids(make_prepared) -> None:
    config = EvaluateConfig(candidates="sampled-popularity", sampled_items=5)
    data = make_prepared()
    names = _names(_asked(data, config), config)

    _give_users_other_ids(data)

    assert _names(_asked(data, config), config) == names


def test_another_question_has_another_name(make_prepared) -> None:
    data = make_prepared()
    configs = [
        CONFIG,
        SAMPLE,
        EvaluateConfig(k=(1, 6)),
        EvaluateConfig(k=(1, 5), relevance="all"),
        EvaluateConfig(k=(1, 5), candidates="sampled-uniform", sampled_items=5),
        EvaluateConfig(k=(1, 5), candidates="sampled-uniform", sampled_items=5, seed=1),
    ]

    assert len({_names(_asked(data, config), config)[0] for config in configs}) == len(configs)


def test_rows_have_another_name_in_another_order_or_with_other_labels(make_prepared) -> None:
    asked = _asked(make_prepared())
    turned = asked.by_user.rows.chosen(np.arange(len(asked.by_user.rows))[::-1])
    relabelled = replace(asked.by_user.rows, labels=1 - asked.by_user.rows.labels)
    others = [replace(asked, by_user=replace(asked.by_user, rows=rows)) for rows in (turned, relabelled)]

    assert len({_names(each)[1] for each in (asked, *others)}) == 3


def test_ids_without_a_vocabulary_are_hashed_themselves(make_prepared) -> None:
    data = make_prepared()
    column = data.schema["userId"].model_copy(update={"vocabulary": None})

    hashes = value_hashes(data, column)

    assert len(np.unique(hashes)) == len(hashes) == column.cardinality
    assert (hashes[:3] == value_hashes(data, data.schema["userId"])[:3]).all()
