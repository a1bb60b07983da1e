"""Row-wise CPU kernels of FBGEMM, if installed: two to three times as fast as torch's own operators.

FBGEMM fuses them into the backward pass. Here they run on a finished gradient, after clipping, scaling, and sums over
parts and ranks, with the weights and state of this package.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from recsys_cli.models.torchrec_releases import minor_for_torch
from recsys_cli.packages import installed

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


def adagrad(table: Tensor, ids: Tensor, gradient: Tensor, total: Tensor, *, lr: float, eps: float) -> bool:
    """Update rows as `RowAdagrad` does, with the accumulator of each row of the table, shape (rows,).

    Returns:
        Whether FBGEMM is available and supports the table; otherwise nothing is updated.
    """
    zero = torch.zeros(1, dtype=torch.int64)
    return _run("rowwise_adagrad", table, ids, gradient, (total, zero.int(), zero, torch.tensor(lr), eps, 0.0, 0, 0.0))


def sgd(table: Tensor, ids: Tensor, gradient: Tensor, *, lr: float) -> bool:
    """Update rows by plain gradient descent; arguments and result as in `adagrad`."""
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
    try:
        import_module("fbgemm_gpu")
        schema = torch._C._get_schema(_NAME.format(rule), "")
    except (ImportError, OSError, RuntimeError):
        return None
    supported = [argument.name for argument in schema.arguments] == _SCHEMA[rule].split()
    return getattr(torch.ops.fbgemm, schema.name.partition("::")[2]) if supported else None
