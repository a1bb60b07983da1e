"""Dropout that is quick on a CPU, where torch's own takes longer than the dense layers around it."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from recsys_cli.features.hashing import mix

_BITS = 16
_PER_DRAW = 64 // _BITS


class Dropout(nn.Dropout):
    """Sets a share of elements to zero while training, and scales the others up so that the mean stays.

    On a CPU one random number decides about four elements, by 16 bits each, so the share is right to 1 / 65,536. The numbers come
    from torch's generator, or follow from a row's place in its step where `place` has told it: then a row loses the same elements
    whichever process has it, and whichever part of the step it is in. Elsewhere it is torch's own.
    """

    _key: int | None = None
    _first_row = 0
    _calls = 0

    def place(self, key: int, first_row: int) -> None:
        """Let what is dropped follow from a key, from how often this was called since, and from where rows are.

        Args:
            key: Of the step, another one for each module.
            first_row: The place in the step of the first of the rows that are next.
        """
        self._key, self._first_row, self._calls = key, first_row, 0

    def forward(self, values: Tensor) -> Tensor:
        """Return the values, any shape with rows first, with some of them dropped."""
        if not self.training or not self.p:
            return values
        if values.device.type != "cpu":
            return super().forward(values)
        if self._key is None:
            count = values.numel()
            draws = torch.empty(-(-count // _PER_DRAW), dtype=torch.int64).random_(-(1 << 63), None)
            bits = draws.view(torch.int16)[:count].view(values.shape)
        else:
            self._calls += 1
            bits = self._bits_of_rows(values.shape, mix(self._key, self._calls))
        lowest = round(self.p * (1 << _BITS))
        kept = bits >= lowest - (1 << (_BITS - 1))
        scale = (1 << _BITS) / ((1 << _BITS) - lowest) if lowest < 1 << _BITS else 0.0
        return values * kept.to(values.dtype).mul_(scale)

    def _bits_of_rows(self, shape: torch.Size, key: int) -> Tensor:
        """Return random int16 of a shape: a stretch of the sequence that the rows of the whole step have."""
        num_rows, width = shape[0], shape[1:].numel()
        draws = -(-width // _PER_DRAW)
        numbers = np.random.PCG64DXSM(key).advance(self._first_row * draws).random_raw(num_rows * draws)
        bits = torch.from_numpy(numbers.view(np.int16))
        if width == draws * _PER_DRAW:
            return bits.view(shape)
        return bits.view(num_rows, draws * _PER_DRAW)[:, :width].reshape(shape)
