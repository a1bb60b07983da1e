"""Columns known only after the outcome stay out of the features that `recsys init` proposes; strong honest ones stay in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from recsys_cli.detect import understand
from recsys_cli.detect.understanding import Understanding

ROWS = 2_000
SECONDS = 1_600_000_000


def proposed(path: Path, rows: int = ROWS, **more: np.ndarray) -> Understanding:
    """Return what is understood of clicks by chance and further columns."""
    rng = np.random.default_rng(5)
    clicks = rng.integers(0, 2, rows)
    table = {
        "user": rng.integers(0, 30, rows), "item": rng.integers(0, 20, rows),
        "time": SECONDS + 60 * np.arange(rows), "click": clicks, "position": rng.integers(0, 9, rows),
        **{name: values[:rows] for name, values in more.items()},
    }  # fmt: skip
    pl.DataFrame(table).write_csv(path / "clicks.csv")
    return understand([str(path / "clicks.csv")], {}, "label")


def clicks(rows: int = ROWS) -> np.ndarray:
    """The clicks of `proposed`."""
    return np.random.default_rng(5).integers(0, 2, rows)


def test_columns_that_separate_the_label_are_left_out(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    clicked = clicks() == 1
    found = proposed(
        tmp_path,
        dwell=np.where(clicked, rng.exponential(9, ROWS).round(2), 0.0),
        click_pos=np.where(clicked, rng.integers(0, 999, ROWS).astype(str), ""),
        page=np.where(clicked, rng.choice(["shop", "help"], ROWS), rng.choice(["list", "home"], ROWS)),
    )
    assert found.proposal is not None
    assert set(found.proposal.left_out) == {"dwell", "click_pos", "page"}
    text = found.text("x.yaml")
    assert "columns: [user, item, position]" in text
    assert "# Left out: " in text
    assert sum("alone predicts click (AUC 1.00): left out" in note for note in found.notes) == 3


def test_the_time_of_clicks_is_not_the_time_of_the_rows(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    table = {
        "user": rng.integers(0, 30, ROWS), "item": rng.integers(0, 20, ROWS), "click": clicks(),
        "click_time": [SECONDS + 60 * row if one else None for row, one in enumerate(clicks().tolist())],
    }  # fmt: skip
    pl.DataFrame(table).write_csv(tmp_path / "t.csv")
    found = understand([str(tmp_path / "t.csv")], {})
    assert "timestamp" not in found.interactions.roles
    assert "Dropna" not in found.text("x.yaml")


def test_strong_features_and_chance_are_no_alarm(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    found = proposed(
        tmp_path,
        score=clicks() + rng.normal(0, 0.7, ROWS).round(3),  # AUC .84
        campaign=rng.integers(0, 900, ROWS),
        shop=rng.choice([f"s{number}" for number in range(600)], ROWS),
        bid=np.where(rng.random(ROWS) < 0.3, "", rng.random(ROWS).round(3).astype(str)),
    )
    assert found.proposal is not None
    assert found.proposal.strong == {}


def test_few_rows_of_a_label_are_no_evidence(tmp_path: Path) -> None:
    found = proposed(tmp_path, rows=30, dwell=np.where(clicks(30) == 1, 5.0, 0.0))
    assert found.proposal is not None
    assert found.proposal.left_out == {}
