"""The facts of hand-written rows, and of random rows compared with a naive count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from recsys_cli.errors import DataError
from recsys_cli.etl.report import Facts, queries, shards
from recsys_cli.etl.report.facts import conclude
from recsys_cli.features.schema import FIRST
from recsys_cli.workspace import PreparedData

Report = Callable[..., Facts]
CATEGORIFY = {"op": "Categorify", "columns": ["user", "item"]}
STAR = ({"op": "JoinExternal", "table": "tags", "on": "item", "columns": ["tags", "price"]},
        {"op": "Categorify", "columns": ["user", "item", "tags"]})  # fmt: skip
METHODS: dict[str, dict[str, Any]] = {
    "random": {"method": "random", "valid": 0.3, "test": 0.2},
    "temporal": {"method": "temporal", "valid": 0.3, "test": 0.2},
    "leave-last-out": {"method": "leave-last-out"},
    "user": {"method": "user", "valid": 0.3, "test": 0.2},
}


def texts(facts: Facts, level: str) -> str:
    return "\n".join(finding.text for finding in facts.findings if finding.level == level)


def test_repeated_pairs_within_and_across_splits(report: Report) -> None:
    train = [(1, 1, 1.0, 1), (1, 1, 0.0, 2), (1, 1, 1.0, 3), (1, 2, 0.0, 4), (2, 2, 1.0, 5), (None, 1, 1.0, 6)]
    valid = [(1, 1, 1.0, 7), (1, 1, 1.0, 8), (2, 1, 0.0, 9), (1, 9, 1.0, 10), (9, 1, 0.0, 11), (None, 1, 1.0, 12)]
    test = [(2, 1, 1.0, 13), (2, 2, 0.0, 14), (1, 2, 1.0, 15)]

    facts = report({"train": train, "valid": valid, "test": test})

    assert facts.pairs is not None
    assert facts.pairs.share == 1
    assert facts.pairs.rows == {"train": 5, "valid": 3, "test": 3}  # without nulls and cold-start users and items
    assert facts.pairs.repeated == {"train": 2, "valid": 1, "test": 0}
    assert facts.pairs.seen == {"valid": {"train": 2}, "test": {"train": 2, "valid": 1}}
    warnings = texts(facts, "warning")
    out = "evaluate.repeats says whether rankings keep them"
    for split, end in (("valid", "; rows without ids of their own"), ("test", "\n")):
        assert (
            f"2 of 3 (66.7 %) rows of {split} repeat the (user, item) pair of a row of train: {out}{end}"
            in f"{warnings}\n"
        )
    assert "1 of 3 (33.3 %) rows of test repeat the (user, item) pair of a row of valid" in warnings
    assert "2 of 5 (40.0 %) rows of train repeat the (user, item) pair of another row of train" in texts(facts, "note")


def test_a_constant_in_the_place_of_the_user_or_item_repeats_nothing(report: Report) -> None:
    for rows in ([(1, 2, 1.0, 1), (1, 3, 0.0, 1)], [(1, 2, 1.0, 1), (3, 2, 0.0, 1)]):
        facts = report({"train": rows, "valid": rows, "test": rows})
        assert facts.pairs is not None
        assert facts.pairs.seen["valid"] == {"train": 2}
        assert "(user, item)" not in texts(facts, "warning")
        assert "have user, item and time" not in texts(facts, "warning")


def test_overlap_in_time_of_a_files_split_is_a_warning(report: Report) -> None:
    train = [(1, 1, 1.0, 10), (1, 2, 0.0, 20), (2, 1, 1.0, 30), (2, 2, 0.0, 40)]
    facts = report({"train": train, "valid": [(1, 3, 1.0, 20), (2, 3, 0.0, 50)]})

    [border] = facts.borders
    assert (border.earlier, border.later, border.first, border.after, border.tied) == ("train", "valid", 20, 2, 1)
    assert [(facts.splits[s].first, facts.splits[s].last) for s in ("train", "valid", "test")] == [
        (10, 40),
        (20, 50),
        (None, None),
    ]
    assert "2 of 4 (50.0 %) rows of train are later than the first row of valid (20)" in texts(facts, "warning")


def test_ties_at_the_boundary_of_a_temporal_split(report: Report) -> None:
    rows = [(n % 3, n % 4, float(n % 2), time) for n, time in enumerate([1, 2, 3, 5, 5, 5, 5, 8, 9, 10])]
    facts = report(rows, split={"method": "temporal", "valid": 0.5, "test": 0})

    [border] = facts.borders
    assert (border.first, border.after, border.tied) == (5, 0, 2)
    assert (
        "2 rows of train have the same time as the first row of valid (5): the order of the input breaks ties"
        in texts(facts, "note")
    )
    assert "later than" not in texts(facts, "warning")


def test_cold_users_and_items_are_counted(report: Report) -> None:
    train = [(1, 1, 1.0, 1), (2, 2, 0.0, 2), (None, None, 1.0, 3)]
    facts = report({"train": train, "valid": [(1, 1, 1.0, 5), (7, 2, 0.0, 6), (8, 1, 0.0, 7), (None, 3, 1.0, 8)]})

    train_split, valid = facts.splits["train"], facts.splits["valid"]
    assert train_split.users is not None
    assert (train_split.users.distinct, train_split.users.cold) == (2, 0)
    assert valid.users is not None
    assert valid.items is not None
    assert (valid.users.distinct, valid.users.cold) == (3, 2)
    assert (valid.items.distinct, valid.items.cold) == (3, 1)
    assert facts.missing["user"]["train"].model_dump(exclude_defaults=True) == {"null": 1, "values": 3}
    assert facts.missing["user"]["valid"].model_dump(exclude_defaults=True) == {"null": 1, "unseen": 2, "values": 4}
    assert "2 of 3 (66.7 %) users of valid are cold-start: absent from train" in texts(facts, "note")
    assert "valid has only 1 of its users in train, and its metrics tell little" in texts(facts, "warning")


@pytest.mark.parametrize("options", [{"freq_threshold": 2}, {"freq_threshold": 2, "num_buckets": 4}])
def test_rare_values_have_no_id_and_no_pairs(report: Report, options: dict[str, Any]) -> None:
    train = [(1, 1, 1.0, 1), (1, 1, 0.0, 2), (2, 2, 1.0, 3), (2, 2, 1.0, 4), (3, 2, 0.0, 5), (1, 2, 1.0, 6)]
    facts = report({"train": train, "valid": [(3, 2, 1.0, 7), (1, 1, 0.0, 8), (1, 5, 1.0, 9)]}, CATEGORIFY | options)

    assert facts.users is not None
    assert facts.pairs is not None
    valid = facts.splits["valid"]
    assert (facts.users.distinct, facts.users.rows) == (2, 5)
    assert valid.users is not None
    assert valid.items is not None
    assert (valid.users.distinct, valid.users.cold) == (2, 1)
    assert (valid.items.distinct, valid.items.cold) == (3, 1)
    assert facts.missing["user"]["train"].unseen == 1
    assert facts.pairs.rows == {"train": 5, "valid": 1, "test": 0}
    assert facts.pairs.seen["valid"] == {"train": 1}
    assert all(facts.train_only.values())


def test_label_statistics_and_their_warnings(report: Report) -> None:
    train = [(1, 1, 1.0, 1), (2, 2, 0.0, 2), (1, 2, None, 3), (2, 1, 1.0, 4)]
    facts = report({"train": train, "valid": [(1, 1, 1.0, 5)], "test": [(1, 1, 4.5, 6), (2, 2, 2.5, 7)]})

    labels = {name: split.label.model_dump(exclude_defaults=True) for name, split in facts.splits.items()}
    assert labels["train"] == {"mean": pytest.approx(2 / 3), "low": 0, "high": 1, "null": 1, "binary": True}
    assert labels["test"] == {"mean": 3.5, "low": 2.5, "high": 4.5, "null": 0, "binary": False}
    assert facts.missing["label"]["train"].model_dump(exclude_defaults=True) == {"null": 1, "values": 4}
    assert "1 of 4 (25.0 %) rows of train have no label" in texts(facts, "warning")
    assert "every label of valid is 1" in texts(facts, "warning")
    assert "labels of test go from 2.5 to 4.5, but train and evaluate expect 0 and 1" in texts(facts, "warning")
    of_numbers = conclude(facts.model_copy(update={"task": "regression"}))
    assert not any("go from" in finding.text for finding in of_numbers)


@pytest.mark.parametrize("layout", ["star", "flat"])
def test_table_columns_count_once_per_interaction(report: Report, layout: str) -> None:
    train = [(1, 1, 1.0, 1), (1, 1, 0.0, 2), (2, 2, 1.0, 3), (2, 3, 0.0, 4)]
    facts = report({"train": train, "valid": [(1, 2, 1.0, 5), (1, 9, 0.0, 6)]}, *STAR, layout=layout)

    assert facts.missing["tags"]["train"].model_dump(exclude_defaults=True) == {"null": 2, "values": 5}
    assert facts.missing["tags"]["valid"].model_dump(exclude_defaults=True) == {"null": 0, "values": 1}
    assert facts.missing["price"]["train"].model_dump(exclude_defaults=True) == {"null": 1, "values": 4}
    assert facts.missing["price"]["valid"].model_dump(exclude_defaults=True) == {"null": 2, "values": 2}
    assert set(facts.missing) == {"user", "item", "tags", "price", "label", "time"}


def test_popularity_and_activity_are_those_of_train(report: Report) -> None:
    train = [(user, item, 1.0, 0) for item, count in ((1, 6), (2, 3), (3, 1)) for user in range(count)]
    facts = report({"train": train, "valid": [(0, 3, 0.0, 9)] * 5})

    assert facts.items is not None
    assert facts.users is not None
    assert (facts.items.least, facts.items.median, facts.items.most, facts.items.once) == (1, 3, 6, 1)
    assert facts.items.head == {"0.01": 0.6, "0.1": 0.6}  # the share of one of three values, the minimum
    assert facts.train_only == {"user": True, "item": True}


def test_rows_of_each_op(report: Report) -> None:
    rows = [(n % 3, n % 2, float(n % 5), n) for n in range(20)]
    facts = report(
        rows,
        {"op": "Filter", "expression": "label > 0"},
        {"op": "KCore", "columns": {"user": 2}},
        CATEGORIFY,
        split={"method": "temporal", "valid": 0.25, "test": 0},
    )

    assert [(op.rows_in, op.rows_out) for op in facts.ops] == [(20, 16), (16, 16), (16, 16)]
    assert facts.ops[2].columns == ("user", "item")
    assert len(facts.rows_first) == 2


def test_rows_of_train_only_ops_in_a_files_split(report: Report) -> None:
    train = [(1, 1, 1.0, 1), (1, 2, 0.0, 2), (2, 1, 1.0, 3)]
    facts = report({"train": train, "valid": [(2, 1, 1.0, 4)] * 2}, {"op": "KCore", "columns": {"user": 2}}, CATEGORIFY)
    assert [(op.rows_in, op.rows_out) for op in facts.ops] == [(5, 4), (4, 4)]


def test_sampled_negatives_are_no_interactions(report: Report) -> None:
    rows = [(user, item, 1.0, 10 * user + item) for user in range(4) for item in range(user + 1)]
    facts = report(
        rows,
        {"op": "NegativeSampling", "user": "user", "item": "item", "num_negatives": 1},
        CATEGORIFY,
        {"op": "LambdaOp", "expression": "sampled == 0", "output": "liked", "dtype": "int8"},
        split={"method": "temporal", "valid": 0.2, "test": 0},
        timestamp="time",
        label="liked",
    )

    splits = facts.splits
    assert splits["train"].rows + splits["valid"].rows == 10 + splits["train"].drawn + splits["valid"].drawn
    assert splits["train"].drawn > 0
    assert facts.ops[0].rows_out - facts.ops[0].rows_in == splits["train"].drawn + splits["valid"].drawn
    for split in (splits["train"], splits["valid"]):
        assert split.label.mean == pytest.approx((split.rows - split.drawn) / split.rows)
    assert facts.pairs is not None
    assert facts.pairs.repeated["train"] == 0
    assert facts.pairs.rows["train"] == splits["train"].rows - splits["train"].drawn
    assert all(facts.train_only.values())


def test_list_column_of_items_is_no_leak(report: Report) -> None:
    rows = [(user, item, float(user % 2), item) for user in range(6) for item in range(user, user + 3)]
    aggs = {"item": ["list", "last"], "label": "max", "time": "max"}
    facts = report(
        rows,
        {"op": "Groupby", "by": "user", "aggs": aggs, "order_by": "time"},
        {"op": "Categorify", "columns": ["user", "item_list", "item_last"]},
        {"op": "ListSlice", "columns": "item_list", "start": -2},
        item="item_last",
        label="label_max",
        timestamp="time_max",
        split={"method": "temporal", "valid": 0.5, "test": 0},
    )

    assert facts.train_only == {"user": True, "item_last": True}
    assert (facts.ops[0].rows_in, facts.ops[0].rows_out) == (18, 6)
    assert "differ from those of train" not in texts(facts, "warning")


@pytest.mark.parametrize(
    "rows", [[(1, 1, 1.0, 5)], [(1, n, 1.0, 5) for n in range(9)], [(n, 1, 0.0, n) for n in range(9)]]
)
def test_one_row_one_user_or_one_item_has_a_report(report: Report, rows: list[tuple[Any, ...]]) -> None:
    facts = report(rows, split={"method": "temporal", "valid": 0, "test": 0})
    assert facts.splits["valid"].rows == 0
    assert facts.borders == ()
    assert facts.users is not None
    assert facts.users.distinct == len({row[0] for row in rows})
    if rows[0][2] == 1:
        assert "every label is 1 (implicit feedback)" in texts(facts, "note")
    else:
        assert "every label of train is 0" in texts(facts, "warning")


def test_constant_labels_are_a_warning_except_implicit_feedback(report: Report) -> None:
    rows = [(user, item, 0.0, user) for user in range(4) for item in range(3)]
    assert "every label of train is 0: AUC is undefined" in texts(report({"train": rows}), "warning")
    held_out = {"train": [*rows, (1, 9, 1.0, 2)], "valid": [(1, 5, 1.0, 9)], "test": [(2, 5, 1.0, 9)]}
    assert "every label of valid is 1: AUC is undefined" in texts(report(held_out), "warning")


def test_all_null_and_no_times_leave_gaps(report: Report) -> None:
    rows = [(None, None, None, None)] * 4
    facts = report(rows, split={"method": "random", "valid": 0.5, "test": 0, "seed": 1}, timestamp=None)
    assert (facts.users, facts.items, facts.timeline) == (None, None, None)
    assert facts.splits["train"].label.mean is None
    facts = report([*rows[:2], (1, 1, 1.0, 3)], split={"method": "random", "valid": 0, "test": 0}, timestamp=None)
    assert facts.timeline is None


def test_counts_different_from_train_are_a_warning(report: Report) -> None:
    facts = report({"train": [(1, 1, 1.0, 1), (2, 2, 0.0, 2)]})
    assert texts(facts, "warning") == ""
    [finding, note] = conclude(facts.model_copy(update={"train_only": {"user": True, "item": False}}))
    assert note.text.startswith("time has neither dates nor ties, so it is a position: the order of the file is taken")
    assert finding.level == "warning"
    assert finding.text.startswith("the fitted counts of item differ from those of train")


def test_invalid_report_is_an_error(tmp_path: Any) -> None:
    (tmp_path / "report.json").write_text("{}")
    with pytest.raises(DataError, match=r"report\.json: not a report of this version") as found:
        Facts.read(tmp_path / "report.json")
    assert "recsys etl --force" in str(found.value.hint)


# ---- compared with a naive count ----


def some_rows(seed: int) -> list[tuple[Any, ...]]:
    rng = np.random.default_rng(seed)
    users, items = rng.zipf(1.4, 120) % 30, rng.zipf(1.4, 120) % 12
    nulls = rng.random(120) < 0.1
    times = 1_500_000_000 + rng.integers(0, 40, 120) * 86_400
    return [
        (int(user), None if null else int(item), float(item % 2), int(time))
        for user, item, null, time in zip(users, items, nulls, times, strict=True)
    ]


def prepared_rows(data: PreparedData, split: str) -> list[dict[str, Any]]:
    return [row for path in data.shards(split) for row in pq.read_table(path).to_pylist()]


def own(rows: Iterable[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(row["user"], row["item"]) for row in rows if row["user"] >= FIRST and row["item"] >= FIRST]


@pytest.mark.parametrize("layout", ["star", "flat"])
@pytest.mark.parametrize("method", METHODS)
def test_facts_equal_a_naive_count(prepare: Callable[..., PreparedData], method: str, layout: str) -> None:
    data = prepare(some_rows(3), *STAR, split=METHODS[method], layout=layout)
    facts = Facts.read(data.facts)
    rows = {split: prepared_rows(data, split) for split in ("train", "valid", "test")}

    assert facts.method == method
    assert {name: split.rows for name, split in facts.splits.items()} == {name: len(r) for name, r in rows.items()}
    assert facts.pairs is not None
    assert facts.timeline is not None
    seen: set[tuple[int, int]] = set()
    for split, there in rows.items():
        pairs = own(there)
        assert facts.pairs.repeated[split] == len(pairs) - len(set(pairs))
        if split == "valid":
            assert facts.pairs.seen["valid"]["train"] == sum(pair in seen for pair in pairs)
        seen |= set(pairs)
        assert facts.splits[split].label.mean == pytest.approx(np.mean([row["label"] for row in there]))
        times = [row["time"] for row in there]
        assert (facts.splits[split].first, facts.splits[split].last) == (min(times), max(times))
        assert facts.timeline.rows[split] == tuple(np.histogram(times, facts.timeline.edges)[0].tolist())
    for border in facts.borders:
        times = [row["time"] for row in rows[border.earlier]]
        assert border.first == min(row["time"] for row in rows[border.later])
        assert border.after == sum(time > border.first for time in times)
        assert border.tied == sum(time == border.first for time in times)
    assert len(facts.borders) == 3
    items = Counter(row["item"] for row in rows["train"] if row["item"] >= FIRST)
    assert facts.items is not None
    assert (facts.items.distinct, facts.items.most) == (len(items), max(items.values()))
    assert all(facts.train_only.values())


@pytest.mark.parametrize("method", METHODS)
def test_facts_are_independent_of_the_layout(report: Report, method: str) -> None:
    star, flat = (report(some_rows(4), *STAR, split=METHODS[method], layout=layout) for layout in ("star", "flat"))
    assert star == flat


def test_sample_has_all_rows_of_selected_users(
    prepare: Callable[..., PreparedData], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    rows = [(int(u), int(i), 1.0, n) for n, (u, i) in enumerate(rng.integers(0, [400, 9], (4_000, 2)))]
    monkeypatch.setattr(queries, "ROWS", 1_000)
    data = prepare(rows, split=METHODS["temporal"])
    facts = Facts.read(data.facts)
    pairs, timeline = facts.pairs, facts.timeline

    assert timeline is not None
    assert timeline.every == 4
    assert [abs(sum(timeline.rows[name]) - facts.splits[name].rows) < 50 for name in timeline.rows] == [True] * 3
    assert pairs is not None
    assert (pairs.share, pairs.by) == (0.25, "user")
    looked_at = sum(pairs.rows.values())
    assert 700 < looked_at < 1_300
    train = own(prepared_rows(data, "train"))
    share = (len(train) - len(set(train))) / len(train)
    assert pairs.repeated["train"] / pairs.rows["train"] == pytest.approx(share, rel=0.2)
    assert "(in a sample: 25 % of the values of user)" in texts(facts, "note")


@pytest.mark.parametrize("name", ["random", "temporal", "leave-last-out", "user"])
def test_only_a_random_split_has_targets_with_a_future(report: Report, name: str) -> None:
    rng = np.random.default_rng(11)
    rows = [
        (int(u), int(i), 1.0, int(t)) for u, i, t in zip(*(rng.integers(1, n, 300) for n in (12, 30, 60)), strict=True)
    ]
    facts = report(rows, split=METHODS[name])

    assert (sum(facts.future.values()) > 0) == (name == "random")
    assert "see the future of these targets" not in texts(facts, "warning")  # known of random splits


def test_planted_faults_of_a_given_split(report: Report) -> None:
    train = [(1, 1, 1.0, 10), (1, 2, 1.0, 20), (2, 1, 1.0, 30), (2, 1, 1.0, 31), (3, 3, 1.0, 15)]
    valid = [(3, 1, 1.0, 40)]
    test = [
        (1, 3, 1.0, 15),  # before (1, 2) of train
        (1, 2, 1.0, 20),  # the target itself is in train
        (2, 2, 1.0, 50),
        (3, 2, 1.0, 39),  # before the row of valid
        (3, 9, 1.0, 60),  # an item without train rows
        (9, 1, 1.0, 5),  # a user without train rows
    ]
    facts = report({"train": train, "valid": valid, "test": test})

    assert facts.future == {"valid": 0, "test": 2}
    warnings, notes = texts(facts, "warning"), texts(facts, "note")
    assert "2 of 6 (33.3 %) rows of test have a later row of the same user in an earlier split" in warnings
    assert "rows of test repeat the (user, item) pair of a row of train" in warnings
    assert "rows of train are later than the first row of test" in warnings
    assert "2 of 5 (40.0 %) rows of train repeat" not in notes
    assert "1 of 5 (20.0 %) rows of train repeat the (user, item) pair of another row of train" in notes
    assert "1 of 6 (16.7 %) rows of test have an item without an id" in notes


@pytest.mark.parametrize("item", [None, 99])
def test_rows_with_an_empty_or_a_cold_item_have_the_same_finding(report: Report, item: int | None) -> None:
    rows = clean_rows()
    rows["test"] += [(user, item, 1.0, 30_000 + user) for user in range(2)]
    rows["valid"] += [(0, item, 1.0, 15_000), (1, 99, 1.0, 15_001), (2, None, 1.0, 15_002)]

    notes = texts(report(rows), "note")
    assert "3 of 9 (33.3 %) rows of valid and 2 of 14 (14.3 %) of test have an item without an id" in notes


NOT_COMPARED = "have a user or an item without an id: copies, repeated pairs and common targets of these rows are not"


def test_a_split_of_cold_users_is_not_said_to_be_clean(report: Report) -> None:
    rows = [(user, item, 1.0, 100 * user + item) for user in range(20) for item in range(6)]
    facts = report(rows + rows, split=METHODS["user"])  # each row twice

    notes = texts(facts, "note")
    assert facts.copies is not None
    for split in ("valid", "test"):
        assert facts.splits[split].rows > 0
        assert facts.copies.repeated[split] == 0  # looks clean
    assert notes.count("(100.0 %)") == 4  # users, and their rows
    assert (
        notes.count("of valid and ")
        == notes.count("of test are cold-start") + notes.count(f"of test {NOT_COMPARED}")
        == 2
    )


def test_the_note_on_rows_without_an_id_is_for_a_majority(report: Report) -> None:
    rows = clean_rows()
    rows["test"] = [(0, 6, 1.0, 20_000), (1, 7, 1.0, 20_001), (50, 6, 1.0, 20_002), (51, None, 1.0, 20_003)]
    assert NOT_COMPARED not in texts(report(rows), "note")
    rows["test"].append((1, 99, 1.0, 20_004))
    assert f"3 of 5 (60.0 %) rows of test {NOT_COMPARED}" in texts(report(rows), "note")


def clean_rows() -> dict[str, list[tuple[Any, ...]]]:
    """Rows without a fault: each pair and time once, splits one after another, targets spread over three items."""
    train = [(user, item, 1.0, 100 * user + item) for user in range(12) for item in range(6)]
    train += [(12, item, 1.0, 5_000 + item) for item in (6, 7, 8)]  # every item has a train row
    valid = [(user, 6 + user // 2 % 3, 1.0, 10_000 + user) for user in range(0, 12, 2)]
    test = [(user, 6 + (user // 2 + 1) % 3, 1.0, 20_000 + user) for user in range(12)]
    return {"train": train, "valid": valid, "test": test}


IMPLICIT = "every label is 1"


def test_a_clean_split_has_no_finding(report: Report) -> None:
    facts = report(clean_rows())
    assert [one.text for one in facts.findings if not one.text.startswith((IMPLICIT, "time has neither dates"))] == []
    assert facts.copies is not None
    assert set(facts.copies.repeated.values()) == {0}
    assert {split.items.cold for split in facts.splits.values() if split.items} == {0}


def test_copies_of_rows_in_another_split_are_a_warning(report: Report) -> None:
    """A repeated pair at another time is no copy."""
    rows = clean_rows()
    again = [(user, item, label, time + 30_000) for user, item, label, time in rows["train"][:4]]
    rows["test"] += [*rows["train"][:3], *again, rows["valid"][0]]
    facts = report(rows)

    assert facts.copies is not None
    assert facts.pairs is not None
    assert facts.copies.seen == {"valid": {"train": 0}, "test": {"train": 3, "valid": 1}}
    assert facts.pairs.seen["test"] == {"train": 7, "valid": 1}
    of = len(rows["test"])
    assert f"3 of {of} ({300 / of:.1f} %) rows of test have user, item and time of a row of train" in texts(
        facts, "warning"
    )
    assert "rows of test have user, item and time of a row of valid" in texts(facts, "warning")


def test_copies_within_a_split_are_a_note(report: Report) -> None:
    rows = clean_rows()
    rows["train"] += rows["train"][:2]
    rows["test"].append(rows["test"][0])
    facts = report(rows)

    notes = texts(facts, "note")
    assert f"2 of {len(rows['train'])} (2.6 %) rows of train have user, item and time of another row of train" in notes
    assert "rows of test have user, item and time of another row of test" in notes
    assert "copies" not in texts(facts, "warning")


def test_data_without_times_has_no_copies(report: Report) -> None:
    rows = clean_rows()
    rows["test"] += rows["train"][:3]
    facts = report(rows, timestamp=None)
    assert facts.copies is None
    assert facts.pairs is not None
    assert facts.pairs.seen["test"]["train"] == 3


def test_one_target_of_most_users_is_a_warning(report: Report) -> None:
    rows = clean_rows()
    rows["test"] = [(user, 6 if user < 7 else 7, 1.0, 20_000 + user) for user in range(12)]
    rows["test"] += [(11, 8, 1.0, 30_000 + n) for n in range(3)]
    facts = report(rows)

    target = facts.targets["test"]
    assert (target.item, target.users, target.with_item) == ("6", 12, 7)
    assert "7 of 12 (58.3 %) users of test have a row of the item 6: a ranking equal for all" in texts(facts, "warning")
    assert "users of valid" not in texts(facts, "warning")

    rows["test"][0] = (0, 8, 1.0, 20_000)
    half = report(rows)
    assert half.targets["test"].with_item == 6  # of 12: not most
    assert "users of test" not in texts(half, "warning")


@pytest.mark.parametrize("far", [9 * 10**18, 40_000_000_000, -3_000_000_000])
@pytest.mark.parametrize("unit", [1, 1_000])
def test_times_far_from_all_dates_are_a_warning(report: Report, far: int, unit: int) -> None:
    times = [1_600_000_000 + n for n in range(40)]
    rows = [(n % 4, n % 5, float(n % 2), unit * time) for n, time in enumerate(times)]
    wrong = far if far > 10**18 else unit * far
    odd = [(n, n, 1.0, wrong) for n in range(3)]
    facts = report(rows + odd, split={"method": "temporal", "valid": 0.1, "test": 0.1})

    name = "test" if far > 0 else "train"
    assert facts.splits[name].far == 3
    assert f"3 of {facts.splits[name].rows} " in texts(facts, "warning")
    assert f"such as {wrong / unit:,.0f} seconds since 1970" in texts(facts, "warning")
    assert "before 1900" not in texts(report(rows, split={"method": "temporal"}), "warning")


def test_times_that_are_no_dates_are_never_far(report: Report) -> None:
    rows = [(n % 4, n % 5, float(n % 2), 10**9 * n * n) for n in range(40)]
    facts = report(rows, split={"method": "temporal"})
    assert any(split.far for split in facts.splits.values())
    assert "before 1900" not in texts(facts, "warning")


def test_repeated_pairs_with_sampled_negatives_have_all_rows_compared(report: Report) -> None:
    rows = [(user, item, 1.0, 10 * user + item) for user in range(4) for item in range(user + 1)]
    sampling = {"op": "NegativeSampling", "user": "user", "item": "item", "num_negatives": 1}
    split = {"method": "temporal", "valid": 0.2, "test": 0}
    facts = report([*rows, (3, 3, 1.0, 1)], sampling, CATEGORIFY, split=split)
    assert facts.splits["train"].drawn > 0
    assert "repeat" in texts(facts, "warning") + texts(facts, "note")
    assert "not compared" not in texts(facts, "warning") + texts(facts, "note")


def test_the_most_frequent_target_equals_a_naive_count(prepare: Callable[..., PreparedData]) -> None:
    data = prepare(some_rows(5), *STAR, split=METHODS["random"])
    facts = Facts.read(data.facts)
    for split, target in facts.targets.items():
        rows = prepared_rows(data, split)
        items = Counter(row["item"] for row in rows if row["user"] >= FIRST and row["item"] >= FIRST)
        most = min(item for item, times in items.items() if times == max(items.values()))
        assert target.users == len({row["user"] for row in rows if row["user"] >= FIRST})
        assert target.with_item == len({row["user"] for row in rows if row["item"] == most and row["user"] >= FIRST})
    assert set(facts.targets) == {"valid", "test"}


def test_head_is_the_share_of_the_most_frequent() -> None:
    counts = np.ones(1_000, dtype=np.int64)
    counts[500:510] = 100
    found = queries.frequency(counts)
    assert found is not None
    assert found.head == {"0.01": pytest.approx(1000 / 1990), "0.1": pytest.approx(1090 / 1990)}
    assert (found.distinct, found.rows, found.once, found.median, found.most) == (1_000, 1_990, 990, 1, 100)
    assert queries.frequency(np.zeros(5, dtype=np.int64)) is None


@pytest.mark.parametrize("method", METHODS)
def test_facts_are_independent_of_groups_and_batches_of_rows(
    prepare: Callable[..., PreparedData], monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr(queries, "ROWS", 50)  # of 120 rows: a sample
    whole = Facts.read(prepare(some_rows(6), *STAR, split=METHODS[method]).facts)
    monkeypatch.setattr(shards, "_BATCH_ROWS", 3)
    monkeypatch.setattr(queries, "shard_groups", lambda number: [range(number)] if number else [])
    assert Facts.read(prepare(some_rows(6), *STAR, split=METHODS[method], layout="flat").facts) == whole
