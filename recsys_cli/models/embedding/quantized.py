"""Embedding tables for serving with rows in fp16, or in int8 with one scale per row."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

import torch
from torch import Tensor, nn

TableType = Literal["fp32", "fp16", "int8"]
_INT8 = 127


class QuantizedTable(nn.Module):
    """Rows of a table in fewer bytes; a lookup dequantizes only the rows of a batch.

    int8 is symmetric: each row is divided by its own scale, its largest absolute value over 127, and rounded. Row 0, padding,
    stays zero.

    Args:
        num_rows: Number of rows.
        dim: Width.
        kind: fp16 or int8.
    """

    weight: Tensor
    scale: Tensor | None

    def __init__(self, num_rows: int, dim: int, kind: TableType) -> None:
        super().__init__()
        dtype = torch.int8 if kind == "int8" else torch.float16
        self.register_buffer("weight", torch.empty(num_rows, dim, dtype=dtype))
        self.register_buffer("scale", torch.empty(num_rows) if kind == "int8" else None)

    @classmethod
    def of(cls, table: Tensor, kind: TableType) -> QuantizedTable:
        """Return a table with quantized rows.

        Args:
            table: Rows, float32, shape (cardinality, D).
            kind: fp16 or int8.
        """
        made = cls(0, 0, kind)
        rows = table.detach()
        if made.scale is None:
            limit = torch.finfo(torch.float16).max
            made.weight = rows.clamp(-limit, limit).to(torch.float16)
            return made
        made.scale = rows.abs().amax(dim=1) / _INT8
        divisors = torch.where(made.scale > 0, made.scale, 1.0).unsqueeze(1)
        made.weight = (rows / divisors).round().clamp(-_INT8, _INT8).to(torch.int8)
        return made

    def rows(self, ids: Tensor) -> Tensor:
        """Return rows, float32, shape (U, D), on the device of their ids."""
        place = ids.to(self.weight.device)
        rows = self.weight.index_select(0, place).float()
        if self.scale is not None:
            rows = rows * self.scale.index_select(0, place).unsqueeze(1)
        return rows.to(ids.device)

    @cached_property
    def dequantized(self) -> Tensor:
        """The whole table, float32; kept in memory, for models that read all rows at once."""
        with torch.inference_mode(False), torch.no_grad():
            rows = self.weight.float()
            return rows if self.scale is None else rows * self.scale.unsqueeze(1)
