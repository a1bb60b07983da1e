"""Metrics of each label task, and the cost of their import."""

from __future__ import annotations

import subprocess
import sys
from typing import get_args

import pytest

from recsys_cli.config import TrainConfig
from recsys_cli.features.schema import Task
from recsys_cli.metrics import GROUPED
from recsys_cli.metrics.named import BINARY, COMPARED, REGRESSION, TASKS, check_reported, headlines


def test_every_label_task_has_metrics_with_a_default() -> None:
    assert set(TASKS) == set(get_args(Task))
    for task in TASKS.values():
        assert task.default.by_row is not None
        assert set(task.headlines) <= {*task.metrics, *GROUPED}
        assert all(metric.of_errors is (task is REGRESSION) for metric in task.metrics.values())
        for name in task.leaderboard:
            check_reported(name)
    assert TrainConfig().monitor == BINARY.default.name


def test_paired_tests_have_one_metric_of_a_name() -> None:
    assert list(COMPARED) == ["auc", "log_loss", "rmse", "mae"]


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (["log_loss", "rmse", "auc"], ("auc", "log_loss")),
        (["mae", "rmse"], ("rmse", "mae")),
        ([], ()),
    ],
)
def test_headlines_are_those_of_the_task(known: list[str], expected: tuple[str, ...]) -> None:
    assert headlines(known) == expected


def test_metrics_import_only_numpy() -> None:
    heavy = "{'torch', 'pyarrow', 'polars', 'pandas', 'pydantic', 'scipy'}"
    program = f"import sys, recsys_cli.metrics.named; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
