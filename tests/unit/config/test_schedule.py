"""Factors of learning rate schedules against values by hand, and their config."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from recsys_cli.config import TrainConfig, dump, load
from recsys_cli.config.schedule import Constant, Cosine, Plateau, Schedule, StepDecay, TrainingPosition
from recsys_cli.errors import ConfigError

CONFIG = """\
dataset: {name: synthetic-small}
features:
  user: userId
  item: movieId
  label: label
  ops:
    - {op: Categorify, columns: [userId, movieId]}
    - {op: LambdaOp, expression: rating > 3, output: label, dtype: int8}
"""


def factors(schedule: Any, steps: int, *, per_epoch: int, epochs: int, history: tuple[float, ...] = ()) -> list[float]:
    """Factors of steps 0, 1, …, each with the history so far."""
    return [
        schedule.factor(TrainingPosition(step, per_epoch, epochs, history[: step // per_epoch])) for step in range(steps)
    ]  # fmt: skip


def test_constant_is_one_and_warm_up_is_linear_before_the_schedule() -> None:
    assert factors(Constant(), 4, per_epoch=2, epochs=2) == [1.0] * 4
    assert factors(Constant(warmup_steps=4), 6, per_epoch=6, epochs=1) == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert factors(StepDecay(warmup_steps=2, gamma=0.1), 4, per_epoch=2, epochs=2) == pytest.approx(
        [0.5, 1.0, 0.1, 0.1]
    )


def test_cosine_decays_to_its_floor_after_the_warm_up() -> None:
    found = factors(Cosine(), 9, per_epoch=3, epochs=3)
    assert found == pytest.approx([(1 + math.cos(math.pi * step / 8)) / 2 for step in range(9)])
    assert (found[0], found[4], found[8]) == pytest.approx((1.0, 0.5, 0.0))
    floored = factors(Cosine(floor=0.2, warmup_steps=2), 11, per_epoch=11, epochs=1)
    assert floored[:3] == pytest.approx([0.5, 1.0, 1.0])
    assert floored[6] == pytest.approx(0.6)  # in the middle of the 9 steps after the warm-up
    assert floored[10] == pytest.approx(0.2)  # the last step
    assert Cosine(floor=0.2).factor(TrainingPosition(99, 5, 2)) == pytest.approx(0.2)


def test_cosine_with_warm_up_in_all_steps() -> None:
    assert Cosine(warmup_steps=10).factor(TrainingPosition(9, 5, 2)) == 1.0
    assert Cosine(warmup_steps=10).factor(TrainingPosition(10, 5, 2)) == 1.0
    assert Cosine(warmup_steps=100).factor(TrainingPosition(9, 5, 2)) == pytest.approx(0.1)


def test_step_reduces_every_so_many_epochs() -> None:
    found = factors(StepDecay(epochs=2, gamma=0.5), 12, per_epoch=2, epochs=6)
    assert found == [1.0] * 4 + [0.5] * 4 + [0.25] * 4


@pytest.mark.parametrize(
    ("patience", "history", "cuts"),
    [
        (1, (0.5, 0.6, 0.7), [0, 0, 0, 0]),
        (1, (0.5, 0.5, 0.6, 0.6), [0, 0, 1, 1, 2]),
        (2, (0.7, 0.6, 0.5, 0.4, 0.3), [0, 0, 0, 1, 1, 2]),
        (2, (0.7, 0.6, 0.8, 0.7, 0.8), [0, 0, 0, 0, 0, 1]),
        (1, (-math.inf, -math.inf), [0, 1, 2]),
        (1, (), [0]),
    ],
    ids=["better each time", "as good", "every two", "starts again at a better one", "never a number", "no valid"],
)
def test_plateau_reduces_without_improvement(patience: int, history: tuple[float, ...], cuts: list[int]) -> None:
    schedule = Plateau(patience=patience, gamma=0.5)
    assert factors(schedule, len(history) + 1, per_epoch=1, epochs=9, history=history) == [0.5**cut for cut in cuts]


# -- how it is written ------------------------------------------------------------------------------------------------


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "x.yaml"
    path.write_text(CONFIG)
    return path


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([], Constant()),
        (["train.schedule=cosine"], Cosine()),
        (["train.schedule=cosine", "train.schedule.warmup_steps=100"], Cosine(warmup_steps=100)),
        (["train.schedule.warmup_steps=100"], Constant(warmup_steps=100)),
        (["train.schedule={name: step, epochs: 3}"], StepDecay(epochs=3)),
        (["train.schedule.name=plateau", "train.schedule.patience=4"], Plateau(patience=4)),
    ],
)
def test_a_schedule_is_a_name_or_its_options(config: Path, overrides: list[str], expected: Schedule) -> None:
    found = load(config, overrides)
    assert found.train.schedule == expected
    config.write_text(dump(found))
    assert load(config) == found
    config.write_text(CONFIG + "train:\n  schedule: cosine\n")
    assert load(config, ["train.schedule.floor=0.5"]).train.schedule == Cosine(floor=0.5)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["train.schedule=cosin"], r"train\.schedule: unknown name 'cosin' \(did you mean cosine\?\); known: constant, "),
        (["train.schedule=3"], r"train\.schedule: has to be a mapping"),
        (["train.schedule.floor=0.5"], r"train\.schedule: needs `name: NAME`"),
        (["train.schedule={name: step, gama: 0.3}"], r"train\.schedule\.gama: unknown key \(did you mean gamma\?\)"),
        (["train.schedule={name: constant, floor: 1}"], r"train\.schedule\.floor: unknown key; known: name, warmup_steps"),
        (["train.schedule={name: cosine, floor: 2}"], r"train\.schedule\.floor: has to be at most 1, not 2"),
        (["train.schedule.warmup_steps=-1"], r"train\.schedule\.warmup_steps: has to be at least 0, not -1"),
        (["train.schedule={name: plateau, gamma: 1.0}"], r"train\.schedule\.gamma: has to be less than 1, not 1"),
        (["evaluate.metrics=[ndgc]"], r"evaluate\.metrics\.0: unknown metric 'ndgc' \(did you mean ndcg\?\); .* always reported"),
        (["train.monitor=ndgc@10"], r"train\.monitor: unknown metric 'ndgc@10' \(did you mean ndcg@10\?\); known: loss, .*ndcg@K"),
        (["train.monitor=ndcg"], r"train\.monitor: ndcg needs a cut-off, such as ndcg@10"),
        (["train.monitor=ndcg@0"], r"train\.monitor: the cut-off of ndcg@0 has to be a whole number from 1, such as ndcg@10"),
        (["train.monitor=ndcg@ten"], r"the cut-off of ndcg@ten has to be a whole number from 1"),
        (["train.monitor=auc@10"], r"train\.monitor: auc takes no cut-off, and auc@10 has one"),
    ],
)  # fmt: skip
def test_problem_of_a_schedule_or_monitor(config: Path, overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(config, overrides)


@pytest.mark.parametrize("name", ["loss", "auc", "log_loss", "accuracy", "ece", "calibration", "ndcg@10", "recall@20"])
def test_known_metrics_can_be_monitored(config: Path, name: str) -> None:
    assert load(config, [f"train.monitor={name}"]).train.monitor == name


def test_a_schedule_survives_json() -> None:
    kind: TypeAdapter[Schedule] = TypeAdapter(Schedule)
    for schedule in (Constant(warmup_steps=3), Cosine(floor=0.1), StepDecay(gamma=0.3), Plateau(patience=2)):
        assert kind.validate_json(kind.dump_json(schedule)) == schedule
    assert TrainConfig.model_validate({"schedule": "step"}).schedule == StepDecay()
