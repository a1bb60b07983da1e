"""Which column `init` takes as the target, and which columns are binary labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from recsys_cli.detect import understand
from recsys_cli.detect.profiles import profile, profiles
from recsys_cli.detect.roles import TARGETS, roles
from recsys_cli.detect.task import batch_size

ROWS = 60
COLUMNS: dict[str, list[object]] = {
    "plays": [1 + row % 7 for row in range(ROWS)],
    "event": [("view", "cart", "buy")[row % 3] for row in range(ROWS)],
    "rating": [1 + row % 5 for row in range(ROWS)],
    "clicked": [row % 2 for row in range(ROWS)],
}
PAIRS: dict[str, list[object]] = {"user": [row % 9 for row in range(ROWS)], "item": [row % 7 for row in range(ROWS)]}


def targets(columns: dict[str, list[object]], **given: str) -> dict[str, str]:
    """Return the columns of the targets among users, items and others."""
    found = roles(profiles(pa.table({**PAIRS, **columns})), given)
    return {role: one.column for role, one in found.items() if role in TARGETS}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("plays", "event", "rating", "clicked"), {"label": "clicked"}),
        (("plays", "event", "rating"), {"rating": "rating"}),
        (("plays", "event"), {"event": "event"}),
        (("plays",), {"count": "plays"}),
    ],
)
def test_the_clearest_signal_is_the_target(names: tuple[str, ...], expected: dict[str, str]) -> None:
    assert targets({name: COLUMNS[name] for name in names}) == expected
    assert targets({name: COLUMNS[name] for name in reversed(names)}) == expected


def test_a_given_target_comes_first() -> None:
    assert targets(COLUMNS, rating="rating") == {"rating": "rating"}
    assert targets(COLUMNS, rating="plays") == {"rating": "plays"}
    headless = roles(profiles(pa.table({**PAIRS, **COLUMNS})), {"rating": "plays"}, headless=True)
    assert [role for role in headless if role in TARGETS] == ["rating"]
    assert targets({"clicked": COLUMNS["clicked"], "other": COLUMNS["clicked"]}, label="other") == {"label": "other"}


@pytest.mark.parametrize(
    ("values", "is_binary", "is_label"),
    [
        ([0, 1], True, True),
        ([0.0, 1.0], True, True),
        ([False, True], True, True),
        ([1, 1], True, False),  # all rows are positive
        ([0, 1, None], True, False),
        ([0, 1, 2], False, False),
        ([1, 2], False, False),
        ([-1, 1], False, False),
        ([0.0, 0.5, 1.0], False, False),
    ],
)
def test_labels_are_zero_and_one(values: list[object], is_binary: bool, is_label: bool) -> None:
    column = [values[row % len(values)] for row in range(ROWS)]
    assert profile("label", pa.chunked_array([column])).is_binary is is_binary
    assert ("label" in targets({"label": column})) is is_label


def test_ratings_on_a_line_are_ratings_by_their_name_only() -> None:
    values = [row * 7 % 599 / 30 - 9.98 for row in range(600)]
    pairs = {"user": [row % 40 for row in range(600)], "item": [row % 31 for row in range(600)]}
    for name, expected in (("rating", {"rating"}), ("score", set())):
        found = roles(profiles(pa.table({**pairs, name: values})), {})
        assert {role for role in found if role in TARGETS} == expected


@pytest.mark.parametrize(("known", "owner"), [(0.9, "user"), (0.5, "session")])
def test_sessions_take_the_place_of_users_that_many_rows_lack(known: float, owner: str) -> None:
    users = [row % 9 if row % 10 < 10 * known else None for row in range(ROWS)]
    table = pa.table({**PAIRS, "user": users, "session": [row // 4 for row in range(ROWS)]})
    assert {"user", "session"} & set(roles(profiles(table), {})) == {owner}
    assert "user" in roles(profiles(table), {"user": "user"})


@pytest.mark.parametrize(
    ("rows", "size"),
    [(0, 64), (10_900, 64), (40_000, 256), (100_000, 512), (199_999, 1_024), (200_000, 4_096), (30_000_000, 32_768)],
)
def test_epochs_of_small_tables_have_many_steps(rows: int, size: int) -> None:
    assert batch_size(rows) == size


def events(path: Path, *, users: int) -> str:
    """Write events with repeated pairs, of users who come in turn if few and one after the other if many; return the config."""
    rng = np.random.default_rng(0)
    who = rng.integers(0, users, 2_000) if users < 100 else np.arange(2_000) * users // 2_000
    kinds = rng.choice(["view", "cart", "purchase"], 2_000)
    lines = [
        f"{u},{i},{k},{1_600_000_000 + n}\n"
        for n, (u, i, k) in enumerate(zip(who, rng.integers(0, 9, 2_000), kinds, strict=True))
    ]
    (path / "events.csv").write_text("user,item,event,time\n" + "".join(lines))
    return understand([str(path / "events.csv")], {}).text("x.yaml")


def test_repeated_pairs_of_a_temporal_split_stay_in_train(tmp_path: Path) -> None:
    text = events(tmp_path, users=30)
    assert "method: temporal" in text
    assert "Deduplicate" not in text


def test_later_rows_never_delete_earlier_ones(tmp_path: Path) -> None:
    text = events(tmp_path, users=200)
    assert "method: leave-last-out" in text
    assert "only 0% of the test rows would be of users in train" in text
    assert "{op: Deduplicate, columns: [user, item], keep: first, order_by: [time]}" in text
