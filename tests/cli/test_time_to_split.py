"""Targets after the border of a split by time, and rankings of given candidates, through the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Recsys
from tests.cli.test_protocols import PENALTY, ease, mean, ndcg, ranked

CONFIG = f"""
dataset: {{name: files, interactions: rows.csv}}
split: {{method: temporal, valid: 0.2, test: 0.2}}
features:
  user: user
  item: item
  label: label
  timestamp: time
  ops:
    - {{op: Categorify, columns: [user, item]}}
    - {{op: LambdaOp, expression: "1", output: label, dtype: int8}}
model: {{name: ease, regularization: {PENALTY}}}
evaluate: {{k: [5], bootstrap: 20, max_ranking_users: null}}
"""


@pytest.fixture
def rows(tmp_path: Path) -> list[tuple[int, int, int]]:
    """Distinct (user, item) pairs in order of time."""
    rng = np.random.default_rng(3)
    pairs = [(user, item) for user in range(50) for item in rng.permutation(40)[: rng.integers(8, 16)].tolist()]
    when = [user * 5 + rng.integers(0, 400) for user, _ in pairs]
    made = [(*pairs[row], 1_000 + place) for place, row in enumerate(np.argsort(when, kind="stable").tolist())]
    (tmp_path / "rows.csv").write_text("user,item,time\n" + "".join(f"{u},{i},{t}\n" for u, i, t in made))
    (tmp_path / "config.yaml").write_text(CONFIG)
    return made


def test_targets_of_a_split_by_time(recsys: Recsys, rows: list[tuple[int, int, int]]) -> None:
    valid, test = (int(round(len(rows) * share, 6)) for share in (0.6, 0.8))
    train: dict[int, list[int]] = {}
    before: dict[int, list[int]] = {}
    after: dict[int, list[int]] = {}
    for place, (user, item, _) in enumerate(rows):
        (before if place < test else after).setdefault(user, []).append(item)
        if place < valid:
            train.setdefault(user, []).append(item)
    scores = ease(train)

    def expected(first: int, last: int | None) -> float:
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


def test_a_dataset_without_splits_needs_files(recsys: Recsys, rows: list[tuple[int, int, int]]) -> None:
    assert rows
    found = recsys("etl", "config.yaml", "split={method: files}")
    assert found.code == 2
    assert "has no splits of its own" in found.err
    assert "set split.train to their file" in recsys("etl", "config.yaml", "split={method: files, test: x.csv}").err
