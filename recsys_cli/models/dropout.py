"""Dropout on CPUs, where torch's own takes longer than the dense layers around it."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from recsys_cli.features.hashing import mix

_BITS = 16
_PER_NUMBER = 64 // _BITS


class Dropout(nn.Dropout):
    """Dropout with reproducible masks per row.

    On a CPU one 64-bit random number serves four elements with 16 bits each: the rate is exact to 1 / 65,536. After
    `seed_rows`, numbers come from the row's index in its step, not from torch's generator: a row has the same mask on
    any rank and in any part of the step.
    """

    _key: int | None = None
    _first_row = 0
    _calls = 0

    def seed_rows(self, key: int, first_row: int) -> None:
        """Derive masks from a key of the step and module, the calls since, and row indices from `first_row` in the step."""
        self._key, self._first_row, self._calls = key, first_row, 0

    def forward(self, values: Tensor) -> Tensor:
        """Return the values with dropout; any shape with rows first."""
        if not self.training or not self.p:
            return values
        if values.device.type != "cpu":
            return super().forward(values)
        if self._key is None:
            count = values.numel()
            numbers = torch.empty(-(-count // _PER_NUMBER), dtype=torch.int64).random_(-(1 << 63), None)
            bits = numbers.view(torch.int16)[:count].view(values.shape)
        else:
            self._calls += 1
            bits = self._bits_of_rows(values.shape, mix(self._key, self._calls))
        lowest = round(self.p * (1 << _BITS))
        kept = bits >= lowest - (1 << (_BITS - 1))
        scale = (1 << _BITS) / ((1 << _BITS) - lowest) if lowest < 1 << _BITS else 0.0
        return values * kept.to(values.dtype).mul_(scale)

    def _bits_of_rows(self, shape: torch.Size, key: int) -> Tensor:
        """Return random int16 of a shape: the section of these rows in the random sequence of the whole step."""
        num_rows, width = shape[0], shape[1:].numel()
        per_row = -(-width // _PER_NUMBER)
        numbers = np.random.PCG64DXSM(key).advance(self._first_row * per_row).random_raw(num_rows * per_row)
        bits = torch.from_numpy(numbers.view(np.int16))
        if width == per_row * _PER_NUMBER:
            return bits.view(shape)
        return bits.view(num_rows, per_row * _PER_NUMBER)[:, :width].reshape(shape)
