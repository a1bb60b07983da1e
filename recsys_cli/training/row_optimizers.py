"""Optimizers of embedding tables with sparse gradients: only the rows of a batch are read and written.

On a CPU the kernels of FBGEMM, if installed, are two to three times as fast as torch operators. FBGEMM fuses them into the backward
pass. Here they run on a finished gradient, after clipping, scaling, and sums over parts and ranks, with the weights and state of
this package.
"""

from __future__ import annotations

import inspect
import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.adam import adam

from recsys_cli.errors import ConfigError
from recsys_cli.models.torchrec_releases import minor_for_torch
from recsys_cli.packages import installed, without

_PACKAGES = ("fbgemm-gpu-cpu", "fbgemm-gpu")
_NAME = "fbgemm::split_embedding_backward_codegen_{}_cpu"
_SCHEMA = {
    "rowwise_adagrad": "grad_output host_weights weights_placements weights_offsets D_offsets max_D hash_size_cumsum "
    "total_hash_size_bits indices offsets pooling_mode indice_weights stochastic_rounding momentum1_host "
    "momentum1_placements momentum1_offsets learning_rate_tensor eps weight_decay weight_decay_mode max_norm output_dtype",
    "sgd": "grad_output host_weights weights_placements weights_offsets D_offsets max_D hash_size_cumsum "
    "total_hash_size_bits indices offsets pooling_mode indice_weights stochastic_rounding learning_rate_tensor output_dtype",
}
"""Supported arguments of each kernel; a kernel with other arguments is not used."""


def fbgemm_adagrad(table: Tensor, ids: Tensor, gradient: Tensor, total: Tensor, *, lr: float, eps: float) -> bool:
    """Update rows as `RowAdagrad` does, with the accumulator of each row of the table, shape (rows,).

    Returns:
        Whether FBGEMM is available and supports the table; otherwise nothing is updated.
    """
    zero = torch.zeros(1, dtype=torch.int64)
    return _run("rowwise_adagrad", table, ids, gradient, (total, zero.int(), zero, torch.tensor(lr), eps, 0.0, 0, 0.0))


def fbgemm_sgd(table: Tensor, ids: Tensor, gradient: Tensor, *, lr: float) -> bool:
    """Update rows by plain gradient descent; arguments and result as in `fbgemm_adagrad`."""
    return _run("sgd", table, ids, gradient, (torch.tensor(lr),))


def _run(rule: str, table: Tensor, ids: Tensor, gradient: Tensor, rest: tuple[Any, ...]) -> bool:
    suits = all(one.dtype == torch.float32 and one.device.type == "cpu" for one in (table, gradient))
    kernel = _kernel(rule) if suits and table.is_contiguous() else None
    if kernel is None:
        return False
    if not ids.numel():
        return True
    rows, dim = table.shape
    zero = torch.zeros(1, dtype=torch.int64)
    sums, no_weights, fp32 = 0, torch.empty(0), 0
    kernel(
        gradient.contiguous(), table.detach().view(-1), zero.int(), zero,
        torch.tensor([0, dim], dtype=torch.int32), dim, torch.tensor([0, rows]), rows.bit_length(),
        ids, torch.arange(ids.numel() + 1), sums, no_weights, False, *rest, fp32,
    )  # fmt: skip
    return True


@cache
def _kernel(rule: str) -> Any:
    """Return the kernel of a rule; None if FBGEMM is missing, built for another torch, or has other arguments."""
    release = f"1.{minor_for_torch()}."
    if not any((installed(package) or "").startswith(release) for package in _PACKAGES):
        return None
    with without("fbgemm_gpu.sparse_ops"), suppress(ImportError, OSError, RuntimeError):  # these trace, with sympy
        import_module("fbgemm_gpu")
        schema = torch._C._get_schema(_NAME.format(rule), "")
        supported = [argument.name for argument in schema.arguments] == _SCHEMA[rule].split()
        return getattr(torch.ops.fbgemm, schema.name.partition("::")[2]) if supported else None
    return None


class Uncompiled(Optimizer):
    """Optimizer base with unwrapped methods; only losses are compiled here."""

    add_param_group = inspect.unwrap(Optimizer.add_param_group)
    zero_grad = inspect.unwrap(Optimizer.zero_grad)
    state_dict = inspect.unwrap(Optimizer.state_dict)
    load_state_dict = inspect.unwrap(Optimizer.load_state_dict)


class AdamW(Uncompiled, torch.optim.AdamW):
    """torch.optim.AdamW with an unwrapped step."""

    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))


def rows_of(parameter: Tensor) -> tuple[Tensor, Tensor]:
    """Return the unique ascending ids, shape (U,), of a parameter's sparse gradient, and a view of their rows, shape (U, D).

    Repeated ids, as after several backward passes, are coalesced first; the result replaces the gradient.
    """
    gradient = parameter.grad
    assert gradient is not None
    ids = gradient._indices()[0]
    # The backward pass loses the coalesced flag; a test of the ids is far cheaper than coalescing.
    if not bool((ids[1:] > ids[:-1]).all()):
        gradient = parameter.grad = gradient.coalesce()
    return gradient._indices()[0], gradient._values()


def of_rows(ids: Tensor, rows: Tensor, shape: torch.Size) -> Tensor:
    """Return a sparse gradient of unique ascending ids, shape (U,), and their rows, shape (U, D)."""
    return torch.sparse_coo_tensor(ids.unsqueeze(0), rows, shape, is_coalesced=True, check_invariants=False)


_PART = 1 << 20
"""Elements of a table updated at a time: bounds temporary tensors to 4 MiB each."""


class RowOptimizer(Uncompiled):
    """Optimizer of tables, shape (rows, D), with updates of the rows in sparse gradients; other rows keep weights and state.

    Each updated row and its state is read and written once; torch's own optimizers add and sort sparse tensors. The
    first step of a table creates its state on the table's device.
    """

    @abstractmethod
    def initial_state(self, table: Tensor) -> dict[str, Tensor]:
        """Return the optimizer state of a table before its first step."""

    @abstractmethod
    def update(
        self, table: Tensor, ids: Tensor, gradient: Tensor, state: Mapping[str, Tensor], options: Mapping[str, Any]
    ) -> None:
        """Update rows of a table and their state in place.

        Args:
            table: Embedding table, shape (rows, D).
            ids: Rows to update, unique and ascending; shape (U,).
            gradient: Gradient of these rows, read-only; shape (U, D).
            state: Optimizer state of the table.
            options: Options of the parameter group.
        """

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the rows of the gradients.

        Raises:
            ConfigError: A gradient is not a sparse tensor.
        """
        loss = closure() if closure is not None else None
        for group in self.param_groups:
            for table in group["params"]:
                if table.grad is not None:
                    self._step(table, group)
        return loss

    def _step(self, table: Tensor, group: Mapping[str, Any]) -> None:
        if not table.grad.is_sparse:  # type: ignore[union-attr]
            raise ConfigError(
                "train.sparse_embeddings=true, but the model's embedding tables have dense gradients",
                hint="build the tables with the `sparse` argument of the model, or set train.sparse_embeddings=false",
            )
        state = self.state[table]
        if not state:
            state.update(self.initial_state(table))
        ids, gradient = rows_of(table)
        self.update(table, ids, gradient, state, group)


def parts(ids: Tensor, gradient: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Split ids and rows into parts of at most `_PART` elements, to bound temporary memory."""
    size = max(1, _PART // gradient.shape[1])
    return zip(ids.split(size), gradient.split(size), strict=True)


class RowAdagrad(RowOptimizer):
    """Adagrad with one accumulator per row: s += mean(g²) over the D elements of the row, w -= lr · g / (√s + eps).

    The rule of FBGEMM (EXACT_ROWWISE_ADAGRAD) and DLRM, equal up to rounding. Rare rows keep large steps.
    """

    def __init__(self, params: Iterable[Tensor], *, lr: float = 1e-2) -> None:
        super().__init__(params, {"lr": lr, "eps": 1e-8})

    def initial_state(self, table: Tensor) -> dict[str, Tensor]:
        """Return the sum of mean squares, shape (rows,)."""
        return {"sum": table.new_zeros(table.shape[0])}

    def update(
        self, table: Tensor, ids: Tensor, gradient: Tensor, state: Mapping[str, Tensor], options: Mapping[str, Any]
    ) -> None:
        """Update accumulators and rows."""
        lr, eps, total = options["lr"], options["eps"], state["sum"]
        if fbgemm_adagrad(table, ids, gradient, total, lr=lr, eps=eps):
            return
        for part_ids, part in parts(ids, gradient):
            norm = torch.linalg.vector_norm(part, dim=1)
            sums = total[part_ids].addcmul_(norm, norm, value=1 / part.shape[1])
            total.index_copy_(0, part_ids, sums)
            table.index_add_(0, part_ids, part / sums.sqrt_().add_(eps).unsqueeze(1), alpha=-lr)


class RowAdam(RowOptimizer):
    """Adam for the rows of the batch; all other rows keep weights and moments. The bias correction counts all steps.

    Equal to torch.optim.SparseAdam up to rounding, in a fraction of the time. The state takes twice the table's memory.
    """

    def __init__(self, params: Iterable[Tensor], *, lr: float = 1e-3) -> None:
        super().__init__(params, {"lr": lr, "betas": (0.9, 0.999), "eps": 1e-8})

    def initial_state(self, table: Tensor) -> dict[str, Tensor]:
        """Return the step count and both moments."""
        return {
            "step": torch.zeros((), dtype=torch.float32, device=table.device),
            "exp_avg": torch.zeros_like(table),
            "exp_avg_sq": torch.zeros_like(table),
        }

    def update(
        self, table: Tensor, ids: Tensor, gradient: Tensor, state: Mapping[str, Tensor], options: Mapping[str, Any]
    ) -> None:
        """Gather rows and moments, update them with torch's fused Adam kernel, and write them back."""
        beta1, beta2 = options["betas"]
        # Adam adds eps after the bias correction of the second moment, SparseAdam before it.
        eps = options["eps"] / math.sqrt(1 - beta2 ** (float(state["step"]) + 1))
        tensors = (table, state["exp_avg"], state["exp_avg_sq"])
        for part_ids, part in parts(ids, gradient):
            rows, first, second = gathered = [tensor.index_select(0, part_ids) for tensor in tensors]
            adam(
                [rows], [part], [first], [second], [], [state["step"].clone()], fused=True,
                amsgrad=False, beta1=beta1, beta2=beta2, lr=options["lr"], weight_decay=0.0, eps=eps, maximize=False,
            )  # fmt: skip
            for tensor, values in zip(tensors, gathered, strict=True):
                tensor.index_copy_(0, part_ids, values)
        state["step"].add_(1)


class RowSGD(RowOptimizer):
    """Plain gradient descent without state: w -= lr · g, as torch.optim.SGD without momentum."""

    def __init__(self, params: Iterable[Tensor], *, lr: float) -> None:
        super().__init__(params, {"lr": lr})

    def initial_state(self, table: Tensor) -> dict[str, Tensor]:  # noqa: ARG002 - stateless
        """Return an empty state."""
        return {}

    def update(
        self,
        table: Tensor,
        ids: Tensor,
        gradient: Tensor,
        state: Mapping[str, Tensor],  # noqa: ARG002 - stateless
        options: Mapping[str, Any],
    ) -> None:
        """Subtract the scaled gradient."""
        if not fbgemm_sgd(table, ids, gradient, lr=options["lr"]):
            table.index_add_(0, ids, gradient, alpha=-options["lr"])


__all__ = ["RowAdagrad", "RowAdam", "RowOptimizer", "RowSGD"]
