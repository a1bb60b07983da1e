"""`validate` refuses a model that no training accepts, without a training."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Recsys


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("model.ranker={name: sasrec}", "model.ranker.name is sasrec, which is no ranking model"),
        ("model.rerank=[{name: at-most, feature: colour, number: 4}]", "colour is no categorical feature of item_id"),
    ],
)
def test_a_model_that_does_not_fit_the_columns_is_an_error(
    recsys: Recsys, ratings: Path, override: str, problem: str
) -> None:
    assert recsys("init", ratings).code == 0
    stack = ("validate", "ratings.yaml", "--no-time", "model.name=two-stage")
    assert recsys(*stack).code == 0
    answer = recsys(*stack, override)
    assert answer.code == 2
    assert problem in answer.err
