"""Label weights and smoothing, the monitored metric, and the moving average of weights."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from recsys_cli.batch import Batch
from recsys_cli.errors import TrainingError
from recsys_cli.models.model import Model
from recsys_cli.training.objective import Figures, Monitor, Objective, apply_label_smoothing
from recsys_cli.training.optimizers import Average


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


@pytest.mark.parametrize(("numbers", "seen"), [((), [0.1, 0.9, 0.9]), (("seen",), [0.0, 1.0, 1.0])])
def test_smoothing_draws_all_labels_but_numbers_to_the_middle_and_leaves_the_given_batch(numbers, seen) -> None:
    batch = a_batch()
    found = apply_label_smoothing(batch, Objective("liked", label_smoothing=0.2, numbers=frozenset(numbers)))
    assert found.labels["liked"].tolist() == pytest.approx([0.9, 0.1, 0.3])
    assert found.labels["seen"].tolist() == pytest.approx(seen)
    assert found.weight is None
    assert batch.labels["liked"].tolist() == [1.0, 0.0, 0.25]


def test_weights_follow_from_labels_as_they_were() -> None:
    found = apply_label_smoothing(a_batch(), Objective("liked", positive_weight=3.0, label_smoothing=0.5))
    assert found.weight is not None
    assert found.weight.tolist() == [3.0, 1.0, 1.5]


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


class Net(Model):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(4, 2)
        self.linear = nn.Linear(2, 3)
        self.norm = nn.BatchNorm1d(3)

    def score(self, batch: Batch) -> Tensor:
        raise NotImplementedError

    def loss(self, batch: Batch, *, scores: Tensor | None = None) -> Tensor:
        raise NotImplementedError


def tensors(model: Model) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def trained(model: Model, average: Average, steps: int) -> list[dict[str, Tensor]]:
    """Change the model at random; return its weights after each step."""
    draw, seen = torch.Generator().manual_seed(0), []
    for step in range(steps):
        with torch.no_grad():
            for tensor in model.state_dict().values():
                tensor += (
                    torch.ones_like(tensor)
                    if tensor.dtype == torch.int64
                    else torch.randn(tensor.shape, generator=draw)
                )
        average.update(step)
        seen.append(tensors(model))
    return seen


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_the_average_is_what_a_loop_makes_of_it(sparse: bool) -> None:
    model = Net()
    expected, average = tensors(model), Average(model, decay=0.5, sparse=sparse)
    seen = trained(model, average, 8)
    for step, now in enumerate(seen):
        keep = min(0.5, (1 + step) / (10 + step))
        expected = {name: kept * keep + now[name] * (1 - keep) for name, kept in expected.items()}
    last = seen[-1]
    with average.applied():
        found = tensors(model)
    for name, tensor in found.items():
        live = name == "norm.num_batches_tracked" or (sparse and name == "table.weight")
        torch.testing.assert_close(tensor, last[name] if live else expected[name])


def test_nothing_is_averaged_of_tables_alone_that_are_left_out() -> None:
    class Tables(Net):
        def __init__(self) -> None:
            super().__init__()
            del self.linear, self.norm

    model = Tables()
    average = Average(model, decay=0.5, sparse=True)
    last = trained(model, average, 2)[-1]
    with average.applied():
        assert torch.equal(model.table.weight, last["table.weight"])
    assert not average.state()


def test_the_model_is_itself_again_afterwards_also_after_an_error() -> None:
    model = Net()
    average = Average(model, decay=0.9, sparse=False)
    last = trained(model, average, 3)[-1]
    pointers = {name: tensor.data_ptr() for name, tensor in model.state_dict().items()}

    def broken_off() -> None:
        with average.applied():
            assert not torch.equal(model.linear.weight, last["linear.weight"])
            raise ValueError("broken off")

    with pytest.raises(ValueError, match="broken off"):
        broken_off()
    assert all(torch.equal(tensor, last[name]) for name, tensor in model.state_dict().items())
    assert {name: tensor.data_ptr() for name, tensor in model.state_dict().items()} == pointers


def test_what_was_read_while_applied_stays_the_average() -> None:
    model = Net()
    average = Average(model, decay=0.9, sparse=False)
    trained(model, average, 3)
    with average.applied():
        kept, copied = model.state_dict(), tensors(model)
    assert all(torch.equal(kept[name], copied[name]) for name in copied)


def test_the_average_comes_back_from_its_state() -> None:
    model, other = Net(), Net()
    average, again = Average(model, decay=0.9, sparse=True), Average(other, decay=0.9, sparse=True)
    trained(model, average, 3)
    state = {name: tensor.clone() for name, tensor in average.state().items()}
    assert "average.linear.weight" in state
    assert "average.table.weight" not in state
    again.restore(state)
    assert all(torch.equal(again.state()[name], tensor) for name, tensor in state.items())


def test_a_checkpoint_without_an_average_is_refused() -> None:
    with pytest.raises(TrainingError, match="does not fit the average"):
        Average(Net(), decay=0.9, sparse=False).restore({})
