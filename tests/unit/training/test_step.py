"""Training steps: equal gradients for any number of parts, and a skipped step after an overflow."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from recsys_cli.batch import Batch, Ragged
from recsys_cli.config import TrainConfig
from recsys_cli.config.schedule import TrainingPosition
from recsys_cli.errors import TrainingError
from recsys_cli.features.schema import Column, Kind, Role, Schema
from recsys_cli.models import build
from recsys_cli.models.layers import BatchNorm
from recsys_cli.models.model import Model
from recsys_cli.training import hardware
from recsys_cli.training.ranks import Ranks
from recsys_cli.training.step import Step, clip

START = TrainingPosition(step=0, steps_per_epoch=10, epochs=1)
SCHEMA = Schema(
    columns=(
        Column(name="user", role=Role.USER, kind=Kind.CATEGORICAL, dtype="int32", cardinality=30, vocabulary="u"),
        Column(name="item", role=Role.ITEM, kind=Kind.CATEGORICAL, dtype="int32", cardinality=20, vocabulary="i"),
        Column(
            name="keys", role=Role.FEATURE, kind=Kind.CATEGORICAL, dtype="int32", cardinality=8, vocabulary="k", ragged=True
        ),
        Column(name="label", role=Role.LABEL, kind=Kind.NUMERIC, dtype="int8"),
    )
)  # fmt: skip

WITHOUT_DROPOUT = {"dropout": 0.0, "embedding_dropout": 0.0}


def a_batch(num_rows: int, *, weights: bool = False) -> Batch:
    draw = torch.Generator().manual_seed(num_rows)
    counts = torch.randint(0, 4, (num_rows,), generator=draw)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])

    def ids(number: int, size: int) -> Tensor:
        return torch.randint(0, size, (number,), generator=draw, dtype=torch.int32)

    keys = Ragged(ids(int(offsets[-1]), 8), offsets)
    label = torch.randint(0, 2, (num_rows,), generator=draw).float()
    weight = torch.rand(num_rows, generator=draw) * 3 if weights else None
    return Batch({"user": ids(num_rows, 30), "item": ids(num_rows, 20), "keys": keys}, {"label": label}, weight)


def a_step(*, hidden_dims: tuple[int, ...] = (), sparse_embeddings: bool = False, **config: Any) -> Step:
    """Step of a small network; without hidden layers it has no batch normalization over the rows of a part."""
    torch.manual_seed(0)
    options = {"embedding_dim": 4, "hidden_dims": hidden_dims, **WITHOUT_DROPOUT}
    model = build("mlp", options, SCHEMA, sparse=sparse_embeddings)
    return Step(model, TrainConfig(sparse_embeddings=sparse_embeddings, **{"precision": "fp32", **config}), Ranks())


def gradients(step: Step, batch: Batch) -> dict[str, Tensor]:
    step(batch, START)
    found = step.model.named_parameters()
    return {name: parameter.grad.to_dense() for name, parameter in found if parameter.grad is not None}


@pytest.mark.parametrize("weights", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize(("rows", "parts"), [(64, 2), (64, 7), (5, 9), (1, 4)])
def test_parts_of_a_batch_have_its_gradient_together(rows: int, parts: int, sparse: bool, weights: bool) -> None:
    batch = a_batch(rows, weights=weights)
    whole, cut = a_step(sparse_embeddings=sparse), a_step(sparse_embeddings=sparse, gradient_accumulation_steps=parts)
    expected, found = gradients(whole, batch), gradients(cut, batch)
    assert expected.keys() == found.keys() != set()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-7)
    for name, weight in whole.model.state_dict().items():
        torch.testing.assert_close(cut.model.state_dict()[name], weight, rtol=1e-4, atol=1e-5)


def test_a_table_may_have_no_rows_in_the_first_part_of_a_step() -> None:
    """A list column that is empty in most rows: the first part has no gradient."""
    batch = a_batch(64)
    keys = batch.features["keys"]
    assert isinstance(keys, Ragged)
    late = Ragged(keys.values[:5], torch.cat([torch.zeros(60, dtype=torch.int64), torch.arange(1, 6)]))
    batch = Batch({**batch.features, "keys": late}, batch.labels)
    whole, cut = a_step(sparse_embeddings=True), a_step(sparse_embeddings=True, gradient_accumulation_steps=4)
    expected, found = gradients(whole, batch), gradients(cut, batch)
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-7)


def test_the_loss_of_parts_is_the_mean_over_the_rows() -> None:
    batch = a_batch(64, weights=True)
    expected = a_step().model.eval().loss(batch).item()
    assert float(a_step(gradient_accumulation_steps=5)(batch, START)) == pytest.approx(expected, rel=1e-5)


def test_random_numbers_follow_from_seed_and_step() -> None:
    def drawn(place: TrainingPosition, seed: int = 0) -> float:
        step = a_step(seed=seed)
        step(a_batch(4), place)
        return float(torch.rand(()))

    later = TrainingPosition(step=1, steps_per_epoch=10, epochs=1)
    assert drawn(START) == drawn(START)
    assert len({drawn(START), drawn(later), drawn(START, seed=1)}) == 3


def test_the_rate_of_each_group_is_what_the_schedule_makes_of_it() -> None:
    config = {"learning_rate": 0.2, "embedding_learning_rate": 0.4, "schedule": {"name": "constant", "warmup_steps": 4}}
    step = a_step(sparse_embeddings=True, **config)
    rates = []
    for number in range(5):
        step(a_batch(8), TrainingPosition(step=number, steps_per_epoch=10, epochs=1))
        rates.append([group["lr"] for optimizer in step.optimizers for group in optimizer.param_groups])
    assert rates == [pytest.approx([0.4 * share, 0.2 * share]) for share in (0.25, 0.5, 0.75, 1.0, 1.0)]
    assert step.learning_rate == pytest.approx(0.2)


# -- clipping ---------------------------------------------------------------------------------------------------------


def two_parameters(dense: list[float], sparse: list[float]) -> torch.optim.SGD:
    """A dense gradient, and a sparse gradient of rows 1 and 3 with a repeated row 3."""
    one, table = torch.zeros(len(dense), requires_grad=True), torch.zeros(5, 1, requires_grad=True)
    one.grad = torch.tensor(dense)
    first, second = sparse
    values = [[first], [second - 1.0], [1.0]]
    table.grad = torch.sparse_coo_tensor([[1, 3, 3]], values, (5, 1), check_invariants=True)
    return torch.optim.SGD([{"params": [one]}, {"params": [table]}])


def flat(optimizer: torch.optim.Optimizer) -> list[float]:
    one, table = (group["params"][0].grad for group in optimizer.param_groups)
    return [*one.tolist(), *table.to_dense().flatten().tolist()]


@pytest.mark.parametrize(("longest", "share"), [(2.5, 0.5), (5.1, 1.0)])
def test_clipping_shortens_dense_and_sparse_together_if_they_are_too_long(longest: float, share: float) -> None:
    optimizer = two_parameters([1.0, 2.0], [2.0, 4.0])  # 1 + 4 + 4 + 16 = 5²
    assert float(clip(optimizer, longest)) == pytest.approx(5.0)
    assert flat(optimizer) == pytest.approx([share * one for one in (1.0, 2.0, 0.0, 2.0, 0.0, 4.0, 0.0)], rel=1e-5)


def test_a_step_clips_what_it_has() -> None:
    batch = a_batch(64)
    whole, short = (
        gradients(a_step(sparse_embeddings=True), batch),
        gradients(a_step(sparse_embeddings=True, max_grad_norm=0.01), batch),
    )
    before = sum(float(gradient.square().sum()) for gradient in whole.values()) ** 0.5
    assert before > 0.01
    for name, gradient in whole.items():
        torch.testing.assert_close(short[name], gradient * 0.01 / before, rtol=1e-4, atol=1e-8)


# -- fp16 -------------------------------------------------------------------------------------------------------------


class Chosen(Model):
    """A dense parameter and a table; their gradients are the numbers of the batch."""

    def __init__(self, *, sparse: bool) -> None:
        super().__init__()
        self.dense = nn.Linear(1, 1, bias=False)
        self.table = nn.Embedding(3, 1, sparse=sparse)

    def score(self, batch: Batch) -> Tensor:
        zero = torch.zeros(batch.num_rows, dtype=torch.int64)
        dense, table = batch.features["dense"], batch.features["table"]
        assert isinstance(dense, Tensor)
        assert isinstance(table, Tensor)
        return dense * self.dense.weight[0, 0] + table * self.table(zero)[:, 0]

    def loss(self, batch: Batch, *, scores: Tensor | None = None) -> Tensor:
        return self.score(batch).mean() if scores is None else scores.mean()


def numbers(dense: float, table: float) -> Batch:
    return Batch({"dense": torch.tensor([dense]), "table": torch.tensor([table])}, {})


def weights(step: Step) -> list[float]:
    return [parameter.flatten()[0].item() for parameter in step.model.parameters()]


def chosen_step(**config: Any) -> Step:
    torch.manual_seed(0)
    options = TrainConfig(**{"precision": "fp16", "sparse_embeddings": True, "learning_rate": 0.1, **config})
    return Step(Chosen(sparse=options.sparse_embeddings), options, Ranks())


@pytest.mark.parametrize("overflow", [(1e36, 1.0), (1.0, 1e36)], ids=["dense", "table"])
@pytest.mark.parametrize("longest", [None, 1.0])
def test_an_overflow_anywhere_skips_the_step_of_all_and_halves_the_scale(
    overflow: tuple[float, float], longest: float | None
) -> None:
    """A finite loss with an infinite scaled gradient: 1e36 times 65,536 overflows float32."""
    step = chosen_step(max_grad_norm=longest)
    before, scale = weights(step), step.scaler.get_scale()
    loss = step(numbers(*overflow), START)
    assert torch.isfinite(loss)
    assert weights(step) == before
    assert step.scaler.get_scale() == scale / 2
    step(numbers(1.0, 1.0), START)
    assert all(after != first for after, first in zip(weights(step), before, strict=True))
    assert step.scaler.get_scale() == scale / 2


def test_clipping_comes_after_unscaling() -> None:
    step = chosen_step(max_grad_norm=5.0)
    step(numbers(3.0, 4.0), START)  # its norm is 5, and that of the scaled gradient 327,680
    assert [p.grad.to_dense().flatten()[0].item() for p in step.model.parameters()] == pytest.approx([3.0, 4.0])  # type: ignore[union-attr]


def test_without_fp16_nothing_is_scaled() -> None:
    assert not a_step().scaler.is_enabled()
    assert not a_step(precision="bf16").scaler.is_enabled()


@pytest.mark.parametrize("of_process", [False, True])
def test_tf32_is_as_the_config_says_in_steps_and_as_before_after_them(
    of_process: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    products = torch.backends.cuda.matmul

    def loss_of(model: Model, met: list[bool], batch: Batch) -> Tensor:
        met.append(products.allow_tf32)
        return type(model).loss(model, batch)

    with hardware.tf32(enabled=of_process):
        for wanted in (True, False):
            step, met = a_step(tf32=wanted), []
            monkeypatch.setattr(step.model, "loss", partial(loss_of, step.model, met))
            for parameter in step.model.parameters():
                parameter.register_hook(lambda _, met=met: met.append(products.allow_tf32))
            step(a_batch(8), START)
            assert len(met) > 1  # forward and backward
            with step.autocast():
                met.append(products.allow_tf32)
            assert set(met) == {wanted}
            assert products.allow_tf32 is of_process
            with pytest.raises(KeyError):
                step(Batch({"user": a_batch(8).features["user"]}, a_batch(8).labels), START)
            assert products.allow_tf32 is of_process
    assert products.allow_tf32 is False


# -- torch.compile ----------------------------------------------------------------------------------------------------

TORCH_WARNS = pytest.mark.filterwarnings("ignore")  # of its own ways, while it compiles


@pytest.fixture
def compiled_afresh() -> Iterator[None]:
    """Disable vectorization, for faster compilation."""
    from torch._inductor import config

    with config.patch({"force_disable_caches": True, "cpp.simdlen": 1}):
        yield
    torch.compiler.reset()


@TORCH_WARNS
@pytest.mark.slow
@pytest.mark.usefixtures("compiled_afresh")
@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
def test_a_loss_is_compiled_and_the_time_taken() -> None:
    plain, compiled = (
        chosen_step(precision="fp32", sparse_embeddings=False, compile=choice) for choice in (False, True)
    )
    torch.testing.assert_close(compiled(numbers(2.0, 3.0), START), plain(numbers(2.0, 3.0), START))
    assert weights(compiled) == pytest.approx(weights(plain))
    assert compiled.compiled is not None
    assert compiled.compiled.seconds > 0


@TORCH_WARNS
@pytest.mark.usefixtures("compiled_afresh")
def test_a_compiled_step_is_the_step_also_where_others_share_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trace and differentiate without code generation, the slowest part of compilation."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    monkeypatch.setattr(
        BatchNorm, "gather", staticmethod(lambda value: torch.stack([value, 0 * value]))
    )  # others without rows
    plain, compiled = (
        a_step(sparse_embeddings=True, hidden_dims=(4,)),
        a_step(sparse_embeddings=True, hidden_dims=(4,), compile=True),
    )
    assert plain.model.state_dict().keys() == compiled.model.state_dict().keys()
    for rows in (64, 33):
        expected, found = gradients(plain, a_batch(rows)), gradients(compiled, a_batch(rows))
        for name, gradient in expected.items():
            torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-5)
        compiled.model.load_state_dict(plain.model.state_dict())


@TORCH_WARNS
@pytest.mark.usefixtures("compiled_afresh")
def test_without_a_compiler_the_error_says_what_to_do() -> None:
    from torch._inductor import config

    step = chosen_step(precision="fp32", compile=True)
    with (
        config.patch({"cpp.cxx": ("no-such-compiler",)}),
        pytest.raises(TrainingError, match=r"the model's loss cannot be compiled: .*C\+\+ compiler") as caught,
    ):
        step(numbers(1.0, 1.0), START)
    assert "train.compile=false" in str(caught.value.hint)
