"""Comparison of epochs by the monitored metric."""

from __future__ import annotations

import math

import pytest

from recsys_cli.training.objective import Figures, Monitor


@pytest.mark.parametrize(
    ("monitor", "better", "worse"),
    [
        (Monitor(), {"loss": 9.0, "auc": 0.7}, {"loss": 0.1, "auc": 0.6}),
        (Monitor("loss", "lower"), {"loss": 0.1, "auc": 0.1}, {"loss": 0.2, "auc": 0.9}),
        (Monitor("ece", "lower"), {"loss": 1.0, "auc": None, "ece": 0.1}, {"loss": 0.5, "auc": None, "ece": 0.2}),
        (Monitor("calibration", "one"), {"loss": 1.0, "calibration": 0.9}, {"loss": 1.0, "calibration": 1.2}),
        (Monitor(), {"loss": 0.5, "auc": None}, {"loss": 0.6, "auc": None}),
        (Monitor(), {"loss": 9.0, "auc": 0.1}, {"loss": None, "auc": None}),
        (Monitor("ece", "lower"), {"loss": 9.0, "ece": 0.9}, {"loss": None, "ece": None}),
    ],
    ids=["higher", "loss", "lower", "near one", "loss where there is no AUC", "no number", "no number, lower"],
)
def test_a_better_epoch_has_more_quality(monitor: Monitor, better: Figures, worse: Figures) -> None:
    more, less = monitor.quality(better), monitor.quality(worse)
    assert more is not None
    assert less is not None
    assert more > less


def test_there_is_no_quality_of_what_was_not_measured() -> None:
    assert Monitor().quality({}) is None
    assert Monitor().quality({"loss": None, "auc": None}) == -math.inf
