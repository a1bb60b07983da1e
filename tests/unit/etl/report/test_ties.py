"""Ties in time: planted orders of the file are found, shuffled ones are not, and figures equal a naive count."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recsys_cli.etl.report import Facts, queries
from recsys_cli.features.columns import ROW_NUMBER
from recsys_cli.features.split import SPLITS
from tests.unit.etl.report.test_data_facts import texts

Report = Callable[..., Facts]
Row = tuple[int, int, float, int]
LAST_OUT = {"method": "leave-last-out"}
DAY, START = 86_400, 1_400_000_000


def events(seed: int, *, users: int = 150, each: int = 8, items: int = 60, days: int = 4) -> list[Row]:
    """Events of random items by day, of which several share one, in random order."""
    rng = np.random.default_rng(seed)
    rows = [
        (user, int(item), 1.0, START + DAY * int(rng.integers(days)))
        for user in range(users)
        for item in rng.choice(items, each, replace=False)
    ]
    return [rows[at] for at in rng.permutation(len(rows))]


def found(facts: Facts) -> list[str]:
    """The splits and orders that tell the targets."""
    return [
        f"{split} {name}" for split, ties in facts.ties.items() for name, test in ties.orders.items() if test.p < 0.05
    ]


def test_a_file_sorted_by_user_and_item_tells_the_targets_by_their_value(report: Report) -> None:
    facts = report(sorted(events(1)), split=LAST_OUT)

    assert {"valid value", "test value"} <= {*found(facts)}
    test = facts.ties["test"]
    assert test.targets == 150
    assert 0.6 < test.low < test.tied / test.targets < test.high < 0.9
    assert abs(test.orders["position"].mean - 0.5) < 0.2  # one order of the items may resemble another by chance
    assert test.orders["value"].mean == 1  # always the highest
    warnings = texts(facts, "warning")
    assert (
        f"{test.tied} of 150 ({100 * test.tied / 150:.1f} %) last rows of users in test have the time of the row before"
        in warnings
    )
    assert "the item id is above that of 100.0 % of the user's other rows of this time [100.0, 100.0]" in warnings
    assert "split.tie_seed=1 shuffles ties" in warnings


def test_a_file_sorted_by_product_tells_the_targets_by_its_position(report: Report) -> None:
    codes = np.random.default_rng(2).permutation(60)  # the order of the file is not that of the ids
    facts = report(sorted(events(2), key=lambda row: (codes[row[1]], row[0])), split=LAST_OUT)

    assert {"valid position", "test position"} <= {*found(facts)}
    assert facts.ties["test"].orders["position"].mean > 0.99
    assert abs(facts.ties["test"].orders["value"].mean - 0.5) < 0.2
    assert "the position in the file is above that of" in texts(facts, "warning")


def test_shuffled_ties_raise_alarms_at_their_level(report: Report) -> None:
    """Forty files: 20 in random order, and 20 seeds that shuffle a file sorted by product."""
    alarms = []
    for seed in range(20):
        alarms.append(found(report(events(seed, users=60), split=LAST_OUT)))
        by_item = sorted(events(seed, users=60), key=lambda row: row[1])
        shuffled = report(by_item, split=LAST_OUT | {"tie_seed": seed})
        assert set(shuffled.ties["test"].orders) == {"value"}  # no row numbers are left
        assert "split.tie_seed" in texts(shuffled, "note")
        alarms.append(found(shuffled))
    assert sum(map(bool, alarms)) <= 6  # of 40 at 5 %: 2 are expected, more than 6 have a probability of 0.3 %


def test_positions_are_not_checked_and_say_so(report: Report) -> None:
    rows = [(user, item, 1.0, at) for user in range(30) for at, item in enumerate(range(user % 3, 9))]
    facts = report(rows, split=LAST_OUT)
    assert not facts.has_dates
    assert "time has neither dates nor ties, so it is a position: the order of the file is taken" in texts(
        facts, "note"
    )
    without = report(rows, split={"method": "random", "valid": 0.1, "test": 0.1}, timestamp=None)
    assert (without.ties, without.has_dates) == ({}, False)
    assert "the data has no times: the order of the file is taken as given and cannot be checked" in texts(
        without, "note"
    )


@pytest.mark.parametrize("method", ["leave-last-out", "random", "temporal"])
@pytest.mark.parametrize("threshold", [1, 5])
def test_ties_equal_a_naive_count(method: str, threshold: int, report: Report, prepare: Any) -> None:
    rows = [*events(7, users=40, items=25), *events(8, users=40, items=25)]  # pairs repeat
    op = {"op": "Categorify", "columns": ["user", "item"], "freq_threshold": threshold}
    split = {"method": method} | ({} if method == "leave-last-out" else {"valid": 0.2, "test": 0.2})
    facts = report(rows, op, split=split)

    split_of, train = _split(rows, prepare(rows, op, split=split))
    groups = defaultdict(list)
    for number, (user, _, _, time) in enumerate(rows):
        groups[user, time].append(number)
    for name, ties in facts.ties.items():
        last = {rows[number][0]: 0 for number, split in enumerate(split_of) if split == name}
        for number, (user, _, _, time) in enumerate(rows):
            last[user] = max(last.get(user, 0), time) if split_of[number] == name else last.get(user, 0)
        held = [n for n, split in enumerate(split_of) if split == name and rows[n][3] == last[rows[n][0]]]
        tied = [number for number in held if number > min(groups[rows[number][0], rows[number][3]])]
        assert (ties.targets, ties.tied) == (len(held), len(tied))
        for order, test in ties.orders.items():
            means = _means(rows, {at: groups[at] for at in last.items()}, split_of, name, train, order)
            assert test.users == len(means)
            assert test.mean == pytest.approx(np.mean(means))
    assert set(facts.ties["test"].orders) == {"value", "position"}


def _split(rows: list[Row], data: Any) -> tuple[list[str], dict[int, list[int]]]:
    """Return the split of each row, and the rows of train by item with an id of its own."""
    import pyarrow.parquet as pq

    split_of = [""] * len(rows)
    for split in ("train", "valid", "test"):
        for path in data.shards(split):
            for number in pq.read_table(path, columns=[ROW_NUMBER])[ROW_NUMBER].to_pylist():
                split_of[number] = split
    known = set(pq.read_table(data.vocabulary("item"))["value"].to_pylist())
    train = defaultdict(list)
    for number, (_, item, _, _) in enumerate(rows):
        if split_of[number] == "train" and item in known:
            train[item].append(number)
    return split_of, train


def _means(
    rows: list[Row],
    groups: Mapping[Any, list[int]],
    split_of: list[str],
    name: str,
    train: dict[int, list[int]],
    order: str,
) -> list[float]:
    least, by_user = min(map(len, train.values())), defaultdict(list)
    for (user, _), group in groups.items():
        others = {number: [other for other in train.get(rows[number][1], []) if other not in group] for number in group}
        kept = [
            number
            for number in group
            if len(others[number]) >= max(1, least) and SPLITS.index(split_of[number]) <= SPLITS.index(name)
        ]
        places = {n: rows[n][1] if order == "value" else sum(others[n]) / len(others[n]) for n in kept}
        targets = [number for number in kept if split_of[number] == name]
        if len(kept) > 1 and 0 < len(targets) < len(kept) and len(set(places.values())) > 1:
            for target in targets:
                rest = [number for number in kept if number != target]
                below = sum((places[n] < places[target]) + 0.5 * (places[n] == places[target]) for n in rest)
                by_user[user].append(below / len(rest))
    return [float(np.mean(ranks)) for ranks in by_user.values()]


def test_large_data_is_sampled_by_user(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = sorted(events(3, users=200))
    monkeypatch.setattr(queries, "ROWS", len(rows) // 2)
    facts = report(rows, split=LAST_OUT)
    assert 60 < facts.ties["test"].targets < 140
    assert "test value" in found(facts)


def test_report_before_this_one_has_no_ties(report: Report, tmp_path: Path) -> None:
    facts = report(events(1, users=20), split=LAST_OUT)
    (tmp_path / "report.json").write_text(facts.model_dump_json(exclude={"ties"}))
    assert Facts.read(tmp_path / "report.json").ties == {}
