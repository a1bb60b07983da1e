"""Row weights and label smoothing, against numbers computed by hand."""

from __future__ import annotations

import pytest
import torch

from recsys_cli.batch import Batch
from recsys_cli.training.objective import Objective, apply_label_smoothing


def a_batch(weight: list[float] | None = None) -> Batch:
    labels = {"liked": torch.tensor([1.0, 0.0, 0.25]), "seen": torch.tensor([0.0, 1.0, 1.0])}
    return Batch({"x": torch.zeros(3)}, labels, None if weight is None else torch.tensor(weight))


def test_without_options_the_batch_stays_what_it_is() -> None:
    batch = a_batch([1.0, 2.0, 3.0])
    found = apply_label_smoothing(batch, Objective("liked"))
    assert found.weight is batch.weight
    assert all(found.labels[name] is label for name, label in batch.labels.items())


@pytest.mark.parametrize(("weight", "expected"), [(None, [5.0, 1.0, 2.0]), ([2.0, 3.0, 0.5], [10.0, 3.0, 1.0])])
def test_positive_rows_count_as_much_as_is_said(weight: list[float] | None, expected: list[float]) -> None:
    found = apply_label_smoothing(a_batch(weight), Objective("liked", positive_weight=5.0))
    assert found.weight is not None
    assert found.weight.tolist() == expected
    assert found.labels["liked"].tolist() == [1.0, 0.0, 0.25]


def test_smoothing_draws_all_labels_to_the_middle_and_leaves_the_given_batch() -> None:
    batch = a_batch()
    found = apply_label_smoothing(batch, Objective("liked", label_smoothing=0.2))
    assert found.labels["liked"].tolist() == pytest.approx([0.9, 0.1, 0.3])
    assert found.labels["seen"].tolist() == pytest.approx([0.1, 0.9, 0.9])
    assert found.weight is None
    assert batch.labels["liked"].tolist() == [1.0, 0.0, 0.25]


def test_weights_follow_from_labels_as_they_were() -> None:
    found = apply_label_smoothing(a_batch(), Objective("liked", positive_weight=3.0, label_smoothing=0.5))
    assert found.weight is not None
    assert found.weight.tolist() == [3.0, 1.0, 1.5]


def test_smoothing_leaves_numbers_as_they_are() -> None:
    found = apply_label_smoothing(a_batch(), Objective("liked", label_smoothing=0.2, numbers=frozenset({"seen"})))
    assert found.labels["liked"].tolist() == pytest.approx([0.9, 0.1, 0.3])
    assert found.labels["seen"].tolist() == [0.0, 1.0, 1.0]
