"""Gradient sums over ranks: dense ones in few large messages, sparse ones by an exchange of rows.

Sums are equal bit for bit on all ranks and devices, so the replicas of a model stay identical.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from recsys_cli.training.rows.gradient import of_rows, rows_of

_BUCKET = 1 << 23
"""Approximate elements of a message: smaller gradients share one, a larger one is sent without a copy."""
_NONE, _DENSE = -2, -1
"""Codes for no gradient and a dense gradient, in place of the number of rows of a sparse one."""


def sum_over_ranks(parameters: Sequence[nn.Parameter]) -> None:
    """Replace the gradient of each parameter, the same on every rank, by its sum over all ranks.

    A gradient missing on some ranks counts as zero there; one missing on all ranks stays missing.
    """
    kinds = torch.tensor([_num_rows(parameter) for parameter in parameters])
    everywhere = gather(kinds)
    dense = (everywhere == _DENSE).any(0).tolist()
    sparse = (everywhere >= 0).any(0)
    _sum_dense([parameter for parameter, one in zip(parameters, dense, strict=True) if one])
    tables = [parameter for parameter, one in zip(parameters, sparse.tolist(), strict=True) if one]
    if tables:
        _sum_sparse(tables, everywhere[:, sparse].clamp(min=0))


def gather(value: Tensor) -> Tensor:
    """Gather a tensor of the same shape from all ranks; shape (ranks, ...)."""
    everywhere = value.new_empty((dist.get_world_size(), *value.shape))
    dist.all_gather(list(everywhere.unbind()), value.contiguous())
    return everywhere


def gather_rows(rows: Tensor) -> Tensor:
    """Concatenate the rows of all ranks in rank order; the number of rows may differ by rank."""
    counts = gather(torch.tensor([rows.shape[0]])).flatten().tolist()
    return torch.cat(_gather_uneven(rows, counts))


def _num_rows(parameter: nn.Parameter) -> int:
    if parameter.grad is None:
        return _NONE
    if not parameter.grad.is_sparse:
        return _DENSE
    return rows_of(parameter)[0].numel()


def _sum_dense(parameters: Sequence[nn.Parameter]) -> None:
    gradients = []
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        gradients.append(parameter.grad)
    for bucket in _buckets(gradients):
        if len(bucket) == 1 and bucket[0].is_contiguous():
            dist.all_reduce(bucket[0])
            continue
        flat = torch.cat([gradient.reshape(-1) for gradient in bucket])
        dist.all_reduce(flat)
        parts = flat.split([gradient.numel() for gradient in bucket])
        for gradient, part in zip(bucket, parts, strict=True):
            gradient.copy_(part.view_as(gradient))


def _buckets(gradients: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Group consecutive gradients of one dtype up to the size of a message."""
    bucket: list[Tensor] = []
    for gradient in gradients:
        size = sum(one.numel() for one in bucket) + gradient.numel()
        if bucket and (size > _BUCKET or gradient.dtype != bucket[0].dtype):
            yield bucket
            bucket = []
        bucket.append(gradient)
    if bucket:
        yield bucket


def _sum_sparse(tables: Sequence[nn.Parameter], counts: Tensor) -> None:
    """Sum the gradients of tables, with counts of rows of shape (ranks, tables): one message for all ids and one for all rows."""
    widths = torch.tensor([table.shape[1] for table in tables])
    local = [_ids_and_rows(table) for table in tables]
    every_ids = _gather_uneven(torch.cat([ids for ids, _ in local]), counts.sum(1).tolist())
    flat = torch.cat([values.reshape(-1) for _, values in local])
    every_values = _gather_uneven(flat, (counts * widths).sum(1).tolist())
    ids_by_rank = [ids.split(sizes) for ids, sizes in zip(every_ids, counts.tolist(), strict=True)]
    values_by_rank = [one.split(sizes) for one, sizes in zip(every_values, (counts * widths).tolist(), strict=True)]
    for number, table in enumerate(tables):
        ids = [by_table[number] for by_table in ids_by_rank]
        rows = [by_table[number].view(-1, table.shape[1]) for by_table in values_by_rank]
        table.grad = _merged(ids, rows, table)


def _ids_and_rows(table: nn.Parameter) -> tuple[Tensor, Tensor]:
    if table.grad is None:
        return torch.empty(0, dtype=torch.int64, device=table.device), table.new_empty((0, table.shape[1]))
    return table.grad._indices()[0], table.grad._values()


def _merged(ids: Sequence[Tensor], rows: Sequence[Tensor], table: nn.Parameter) -> Tensor:
    """Sum rows by id, rank by rank: without repeated ids in an addition, GPUs add in a fixed order too."""
    distinct = _distinct(torch.cat(list(ids)))
    total = rows[0].new_zeros((distinct.numel(), table.shape[1]))
    for rank_ids, rank_rows in zip(ids, rows, strict=True):
        total.index_add_(0, torch.searchsorted(distinct, rank_ids), rank_rows)
    return of_rows(distinct, total, table.shape)


def _distinct(ids: Tensor) -> Tensor:
    if ids.device.type == "cpu":  # numpy's vectorized sort is over ten times faster than torch's here
        return torch.from_numpy(np.unique(ids.numpy()))
    return torch.unique(ids)


def _gather_uneven(local: Tensor, counts: Sequence[int]) -> list[Tensor]:
    """Gather a tensor of shape (count, ...) from each rank, padded because all_gather needs equal shapes."""
    longest = max(counts)
    if not longest:
        return [local] * len(counts)
    padded = local.new_zeros((longest, *local.shape[1:]))
    padded[: local.shape[0]] = local
    return [part[:count] for part, count in zip(gather(padded), counts, strict=True)]
