"""The moving average of weights against a reference, and the unchanged model underneath."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from recsys_cli.batch import Batch
from recsys_cli.errors import TrainingError
from recsys_cli.models.model import Model
from recsys_cli.training.average import Average


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
