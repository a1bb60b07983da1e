"""Batch size, patience, duplicates and split of what `recsys init` proposes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from recsys_cli.detect import understand
from recsys_cli.detect.task import batch_size


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
