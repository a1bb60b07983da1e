"""One mini-batch of named tensors. There is no lookup by position anywhere: a column is found by its name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Ragged:
    """A list of values for each of B rows.

    Attributes:
        values: All elements one after the other, shape (N,).
        offsets: Where each row's list starts, and N at the end; shape (B + 1,), int64.
    """

    values: Tensor
    offsets: Tensor

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Ragged:
        """Return a copy on a device."""
        return Ragged(
            self.values.to(device, non_blocking=non_blocking), self.offsets.to(device, non_blocking=non_blocking)
        )


Feature = Tensor | Ragged


@dataclass(frozen=True)
class Batch:
    """One mini-batch of B rows.

    Attributes:
        features: By column name; ids are int32 or int64 of shape (B,), numbers float32 of shape (B,), lists are Ragged.
        labels: By column name, float32 of shape (B,). Empty at inference.
    """

    features: Mapping[str, Feature]
    labels: Mapping[str, Tensor]

    @property
    def num_rows(self) -> int:
        """B."""
        first = next(iter(self.features.values()))
        return first.offsets.numel() - 1 if isinstance(first, Ragged) else first.shape[0]

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Batch:
        """Return a copy on a device."""
        return Batch(
            {name: feature.to(device, non_blocking=non_blocking) for name, feature in self.features.items()},
            {name: label.to(device, non_blocking=non_blocking) for name, label in self.labels.items()},
        )
