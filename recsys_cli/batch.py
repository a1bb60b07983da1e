"""One mini-batch of named tensors. There is no lookup by position anywhere: a column is found by its name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

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

    def span(self, start: int, stop: int) -> Ragged:
        """Return the lists of the rows start, …, stop - 1."""
        offsets = self.offsets[start : stop + 1]
        first, last = int(offsets[0]), int(offsets[-1])
        return Ragged(self.values[first:last], offsets - first)


Feature = Tensor | Ragged


@dataclass(frozen=True)
class Batch:
    """One mini-batch of B rows.

    Attributes:
        features: By column name; ids are int32 or int64 of shape (B,), numbers float32 of shape (B,), lists are Ragged.
        labels: By column name, float32 of shape (B,). Empty at inference.
        weight: How much each row counts in the loss, float32 of shape (B,); None where all count the same.
    """

    features: Mapping[str, Feature]
    labels: Mapping[str, Tensor]
    weight: Tensor | None = None

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
            None if self.weight is None else self.weight.to(device, non_blocking=non_blocking),
        )

    def parts(self, number: int) -> Iterator[Batch]:
        """Cut into so many batches of about the same size, in order; none of them is empty, so there may be fewer."""
        if number == 1:
            yield self
            return
        rows = self.num_rows
        for start, stop in pairwise(rows * part // number for part in range(number + 1)):
            if start < stop:
                yield self.span(start, stop)

    def span(self, start: int, stop: int) -> Batch:
        """Return the rows start, …, stop - 1."""
        return Batch(
            {
                name: feature.span(start, stop) if isinstance(feature, Ragged) else feature[start:stop]
                for name, feature in self.features.items()
            },
            {name: label[start:stop] for name, label in self.labels.items()},
            None if self.weight is None else self.weight[start:stop],
        )
