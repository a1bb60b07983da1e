"""Options of models with a message of their own."""

from __future__ import annotations

import pytest

HEAD = """\
dataset: {name: movielens-25m}
features:
  user: userId
  item: movieId
  label: label
  timestamp: timestamp
  ops:
    - {op: Categorify, columns: [userId, movieId, genres]}
    - {op: LambdaOp, expression: "rating > 3", output: label, dtype: int8}
"""


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("name: sasrec, time_features: [hour_of_day, hour_of_day]", "model.time_features: has hour_of_day twice"),
        ("name: gru4rec, item_features: [genres, genres]", "model.item_features: has genres twice"),
        ("name: wide-deep, wide: [genres, genres]", "model.wide: has genres twice"),
        ("name: sasrec, item_features: [null]", "model.item_features.0: has to be text, not nothing"),
        ("name: sasrec, item_features: [genres, 3]", "model.item_features.1: has to be text, not 3"),
        ("name: sasrec, item_features: 3", "model.item_features: has to be 'all' or a list, not 3"),
    ],
)
def test_problems_of_lists(problems, write, model: str, expected: str) -> None:
    (found,) = problems(write(f"model: {{{model}}}\n"))
    assert found == f"x.yaml:10: {expected}"
