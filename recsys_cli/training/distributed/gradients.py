"""Gradients of several processes, added up: dense ones in few large messages, sparse ones by exchanging their rows.

Both ways end in the same bits on every rank, on any device, so that copies of a model do not drift apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from recsys_cli.training.rows.gradient import of_rows, rows_of

_BUCKET = 1 << 23
"""Elements of a message, about: smaller gradients travel together, larger ones alone and without a copy."""
_NONE, _DENSE = -2, -1
"""What stands in the place of a sparse gradient's number of rows."""


def add_up(parameters: Sequence[nn.Parameter]) -> None:
    """Replace the gradient of each parameter by the sum over all ranks.

    A parameter that has none on some ranks counts as zero there; one that has none anywhere is left without.

    Args:
        parameters: The same ones, in the same order, on every rank.
    """
    kinds = torch.tensor([_kind(parameter) for parameter in parameters])
    everywhere = gather(kinds)
    dense = (everywhere == _DENSE).any(0).tolist()
    sparse = (everywhere >= 0).any(0)
    _add_dense([parameter for parameter, one in zip(parameters, dense, strict=True) if one])
    tables = [parameter for parameter, one in zip(parameters, sparse.tolist(), strict=True) if one]
    if tables:
        _add_sparse(tables, everywhere[:, sparse].clamp(min=0))


def gather(value: Tensor) -> Tensor:
    """Return a tensor of all ranks, of one shape on each; shape (ranks, ...)."""
    everywhere = value.new_empty((dist.get_world_size(), *value.shape))
    dist.all_gather(list(everywhere.unbind()), value.contiguous())
    return everywhere


def gather_rows(rows: Tensor) -> Tensor:
    """Return the rows of all ranks in their order; shape (n, ...) with another n on each rank."""
    counts = gather(torch.tensor([rows.shape[0]])).flatten().tolist()
    return torch.cat(_gather_uneven(rows, counts))


def _kind(parameter: nn.Parameter) -> int:
    if parameter.grad is None:
        return _NONE
    if not parameter.grad.is_sparse:
        return _DENSE
    return rows_of(parameter)[0].numel()


def _add_dense(parameters: Sequence[nn.Parameter]) -> None:
    found = []
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        found.append(parameter.grad)
    for bucket in _buckets(found):
        if len(bucket) == 1 and bucket[0].is_contiguous():
            dist.all_reduce(bucket[0])
            continue
        flat = torch.cat([gradient.reshape(-1) for gradient in bucket])
        dist.all_reduce(flat)
        parts = flat.split([gradient.numel() for gradient in bucket])
        for gradient, part in zip(bucket, parts, strict=True):
            gradient.copy_(part.view_as(gradient))


def _buckets(found: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Cut into runs of one type, in order, each as long as fits a message."""
    bucket: list[Tensor] = []
    for gradient in found:
        size = sum(one.numel() for one in bucket) + gradient.numel()
        if bucket and (size > _BUCKET or gradient.dtype != bucket[0].dtype):
            yield bucket
            bucket = []
        bucket.append(gradient)
    if bucket:
        yield bucket


def _add_sparse(tables: Sequence[nn.Parameter], counts: Tensor) -> None:
    """Add up the gradients of tables: all ids in one message and all rows in another, however many tables there are.

    Args:
        tables: With sparse gradients.
        counts: Rows of the gradients; shape (ranks, tables).
    """
    widths = torch.tensor([table.shape[1] for table in tables])
    held = [_held(table) for table in tables]
    every_ids = _gather_uneven(torch.cat([ids for ids, _ in held]), counts.sum(1).tolist())
    flat = torch.cat([values.reshape(-1) for _, values in held])
    every_values = _gather_uneven(flat, (counts * widths).sum(1).tolist())
    ids_by_rank = [ids.split(sizes) for ids, sizes in zip(every_ids, counts.tolist(), strict=True)]
    values_by_rank = [one.split(sizes) for one, sizes in zip(every_values, (counts * widths).tolist(), strict=True)]
    for number, table in enumerate(tables):
        ids = [by_table[number] for by_table in ids_by_rank]
        rows = [by_table[number].view(-1, table.shape[1]) for by_table in values_by_rank]
        table.grad = _merged(ids, rows, table)


def _held(table: nn.Parameter) -> tuple[Tensor, Tensor]:
    if table.grad is None:
        return torch.empty(0, dtype=torch.int64, device=table.device), table.new_empty((0, table.shape[1]))
    return table.grad._indices()[0], table.grad._values()


def _merged(ids: Sequence[Tensor], rows: Sequence[Tensor], table: nn.Parameter) -> Tensor:
    """Add rows of the same id, rank by rank: no id comes twice in one addition, so that GPUs add in one order too."""
    together = _distinct(torch.cat(list(ids)))
    total = rows[0].new_zeros((together.numel(), table.shape[1]))
    for some_ids, some_rows in zip(ids, rows, strict=True):
        total.index_add_(0, torch.searchsorted(together, some_ids), some_rows)
    return of_rows(together, total, table.shape)


def _distinct(ids: Tensor) -> Tensor:
    if ids.device.type == "cpu":  # numpy's vectorised sort is over ten times faster than torch's here
        return torch.from_numpy(np.unique(ids.numpy()))
    return torch.unique(ids)


def _gather_uneven(mine: Tensor, counts: Sequence[int]) -> list[Tensor]:
    """Return what each rank has, of shape (count, ...); padded on the way, because messages have to be of one size."""
    longest = max(counts)
    if not longest:
        return [mine] * len(counts)
    padded = mine.new_zeros((longest, *mine.shape[1:]))
    padded[: mine.shape[0]] = mine
    return [part[:count] for part, count in zip(gather(padded), counts, strict=True)]
