"""A study: its record, and its page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from recsys_cli.config import TuneConfig
from recsys_cli.config.tune import Values
from recsys_cli.tuning.report import show
from recsys_cli.tuning.study import Study
from tests.browser import see

pytest.importorskip("optuna")

RATE, EPOCHS = "train.learning_rate", "train.epochs"
FIRST = {RATE: 0.2, EPOCHS: 3}


def ask_all(study: Study, most: int) -> list[dict[str, Any]]:
    """Return the values of new trials, finished with a quality that favors the lowest ones; up to a number."""
    found: list[dict[str, Any]] = []
    while len(found) < most and (trial := study.ask()) is not None:
        study.end(trial, "finished", quality=-float(trial.number))
        found.append(dict(trial.changes))
    return found


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        ({EPOCHS: {"low": 1, "high": 40}}, [{EPOCHS: epochs} for epochs in range(1, 41)]),
        ({EPOCHS: {"low": 1, "high": 16, "log": True}}, [{EPOCHS: epochs} for epochs in range(1, 17)]),
        ({EPOCHS: {"low": 2, "high": 9, "step": 3}}, [{EPOCHS: epochs} for epochs in (2, 5, 8)]),
        ({RATE: {"low": 0.1, "high": 3.0, "step": 0.1}}, [{RATE: round(0.1 * part, 1)} for part in range(1, 31)]),
        ({RATE: {"choices": [1, 0.5, None, [1], "1"]}}, [{RATE: one} for one in (1, 0.5, None, [1], "1")]),
        (
            {RATE: {"choices": [0.1, 0.2, 0.3]}, EPOCHS: {"low": 1, "high": 7}, "train.patience": {"choices": [1]}},
            [{RATE: a, EPOCHS: b, "train.patience": 1} for a in (0.1, 0.2, 0.3) for b in range(1, 8)],
        ),
    ],
)  # fmt: skip
def test_a_study_tries_all_values_once(space: dict[str, Any], expected: list[Any], tmp_path: Path) -> None:
    config = TuneConfig.model_validate({"space": space, "trials": 100})
    study = Study(tmp_path / "journal", config, expected[-1])
    found = ask_all(study, 100)
    assert found[0] == expected[-1]
    assert sorted(map(repr, found)) == sorted(map(repr, expected))
    assert config.combinations == len(expected)
    assert study.ask() is None
    assert Study(tmp_path / "journal", config, expected[-1]).ask() is None


def test_first_trial_leaves_out_values_outside_the_space(tmp_path: Path) -> None:
    config = TuneConfig.model_validate({"space": {RATE: {"choices": [0.1, 0.2]}, EPOCHS: {"low": 1, "high": 2}}})
    found = ask_all(Study(tmp_path / "journal", config, {EPOCHS: 2}), 10)
    assert found[0] == {EPOCHS: 2}
    assert len(found) == 1 + 4


@pytest.mark.parametrize(
    ("space", "inside", "outside"),
    [
        ({"low": 1, "high": 5, "step": 2}, [1, 5], [2, 7, 1.0, True, None]),
        ({"low": 0.1, "high": 0.5, "step": 0.1}, [0.1, 0.3, 0.5], [0.25, 0.6, "0.1"]),
        ({"low": 1e-4, "high": 0.1, "log": True}, [1e-4, 0.05], [1, None]),
        ({"choices": [[8], None, "a"]}, [[8], None, "a"], [[16], "b"]),
    ],
)
def test_space_holds_its_values(space: dict[str, Any], inside: list[Any], outside: list[Any]) -> None:
    values = Values.model_validate(space)
    assert [values.holds(value) for value in (*inside, *outside)] == [True] * len(inside) + [False] * len(outside)


def test_a_range_of_floats_never_ends(tmp_path: Path) -> None:
    config = TuneConfig.model_validate({"space": {RATE: {"low": 0.1, "high": 0.2}, EPOCHS: {"choices": [1]}}})
    assert config.combinations is None
    found = ask_all(Study(tmp_path / "journal", config, {RATE: 0.15, EPOCHS: 1}), 40)
    assert len({one[RATE] for one in found}) == 40


def test_a_resumed_study_samples_the_same_values(tmp_path: Path) -> None:
    config = TuneConfig.model_validate({"space": {RATE: {"choices": [0.1, 0.2]}, EPOCHS: {"low": 1, "high": 10}}})
    whole = ask_all(Study(tmp_path / "whole", config, FIRST), 20)
    parts = [one for _ in range(4) for one in ask_all(Study(tmp_path / "parts", config, FIRST), 5)]
    assert whole == parts
    assert len({repr(one) for one in whole}) == 20


def test_a_choice_given_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="has a choice twice"):
        TuneConfig.model_validate({"space": {RATE: {"choices": [0.1, 0.2, 0.1]}}})


def an_entry(trial: int, state: str, curve: list[float | None], **changes: Any) -> dict[str, Any]:
    return {
        "rank": None, "trial": trial, "state": state, "value": curve[-1] if curve else None, "changes": changes,
        "overrides": "a=1 'b=<2>'", "epochs": len(curve), "curve": curve, "seconds": 1.25, "run": None, "message": "no <memory>",
    }  # fmt: skip


def a_study(ranking: list[dict[str, Any]]) -> dict[str, Any]:
    states = [entry["state"] for entry in ranking]
    return {
        "metric": {"name": "auc", "better": "higher"},
        "space": {"train.lr": {"low": 0.001, "high": 1.0, "log": True}, "model.hidden_dims": {"choices": [[64], [128, 128]]}},
        "trials": {"wanted": 9, **{s: states.count(s) for s in ("finished", "pruned", "running", "failed")}},
        "best": next((entry for entry in ranking if entry["state"] == "finished"), None),
        "ranking": ranking,
    }  # fmt: skip


RANKING = [
    an_entry(3, "finished", [0.6, 0.8], **{"train.lr": 0.01, "model.hidden_dims": [64]}),
    an_entry(1, "finished", [0.5, 0.7], **{"train.lr": 0.1, "model.hidden_dims": [128, 128]}),
    an_entry(2, "pruned", [0.4], **{"train.lr": 1.0, "model.hidden_dims": [64]}),
    an_entry(4, "running", []),
    an_entry(5, "failed", [], **{"train.lr": 0.5, "model.hidden_dims": [64]}),
]


def dots(figure: str, colour: str) -> list[tuple[float, float]]:
    found = re.findall(rf'class="dot {colour}" cx="([\d.]+)" cy="([\d.]+)"', figure)
    return [(float(x), float(y)) for x, y in found]


def test_points_are_at_their_values() -> None:
    history, _, rate, hidden = re.findall(r"<svg.*?</svg>", show(a_study(RANKING), data="d", config="x: 1"))
    (one, low), (three, high) = dots(history, "s1")
    assert one < three
    assert low > high  # further down
    assert len(dots(history, "s3")) == 1
    (x1, _), (x2, _) = sorted(dots(rate, "s1"))
    ((x3, _),) = dots(rate, "s3")
    assert x2 - x1 == pytest.approx(x3 - x2, abs=0.2)  # 0.01, 0.1 and 1 on a logarithmic axis
    assert dots(hidden, "s1")[0][0] < dots(hidden, "s1")[1][0]  # [64], [128, 128]
    assert dots(hidden, "s3")[0][0] == dots(hidden, "s1")[0][0]
    assert "[128, 128], 0.7" in hidden


@pytest.mark.parametrize(
    ("better", "best"), [("higher", [0.5, 0.75, 0.75]), ("lower", [0.5, 0.5, 0.25]), ("one", [0.5, 0.75, 0.75])]
)
def test_the_best_so_far_never_gets_worse(better: str, best: list[float]) -> None:
    study = a_study([an_entry(trial, "finished", [y]) for trial, y in ((1, 0.5), (2, 0.75), (3, 0.25))])
    study |= {"space": {}, "metric": {"name": "x", "better": better}}
    history = re.findall(r"<svg.*?</svg>", show(study, data="d", config=""))[0]
    points = re.findall(r'class="line s2" points="([^"]*)"', history)[0].split()
    heights = {y: cy for (_, cy), y in zip(dots(history, "s1"), (0.5, 0.75, 0.25), strict=True)}
    assert [float(point.split(",")[1]) for point in points] == [heights[y] for y in best]


def test_the_page_has_the_caveat_of_the_best_trial_and_reasons_of_failures() -> None:
    page = " ".join(show(a_study(RANKING), data="d", config="x: <1>").split())
    assert "best of 2 finished trials by auc on valid, an optimistic estimate: recsys evaluate" in page
    assert "the median trial has 0.7500, and the difference is not tested for significance." in page
    assert all(text in page for text in ("no &lt;memory&gt;", "b=&lt;2&gt;", "&lt;1&gt;"))
    alone = show(a_study(RANKING[:1]), data="d", config="")
    assert "trial 3 is the only finished one" in alone


def test_a_study_without_a_result_has_a_page() -> None:
    page = show(a_study([an_entry(1, "failed", []), an_entry(2, "running", [])]), data="d", config="")
    assert "<svg" not in page
    assert "The best values" not in page


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (1200, True), (500, False)])
def test_a_browser_shows_it(tmp_path: Path, width: int, dark: bool) -> None:
    seen = see(show(a_study(RANKING), data="d", config="x: 1"), tmp_path, width=width, dark=dark)
    assert seen["loaded"] == []
    assert seen["overflow"] <= 0
    assert seen["charts"] == 4
    assert seen["headings"] == ["Trials", "Keys", "Failed", "Config"]
    assert seen["ink"] == ("rgb(228, 231, 235)" if dark else "rgb(31, 35, 40)")
