"""The sampler: no trial repeats the values of an earlier one, and a study ends with its search space."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recsys_cli.config import TuneConfig
from recsys_cli.config.tune import Values

pytest.importorskip("optuna")
from recsys_cli.tuning.study import Study

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
