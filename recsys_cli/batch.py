"""One mini-batch of named tensors. There is no lookup by position anywhere: a column is found by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor


@dataclass(frozen=True)
class Ragged:
    """A list of values for each of B rows.

    Attributes:
        values: All elements one after the other, shape (N,).
        offsets: Where each row's list starts, and N at the end; shape (B + 1,), int64.
        weights: How much each element counts where the list is summed, float32 of shape (N,); None where each counts once.
    """

    values: Tensor
    offsets: Tensor
    weights: Tensor | None = None

    def map(self, function: Callable[[Tensor], Tensor]) -> Ragged:
        """Return the lists with a function applied to each of their tensors."""
        return Ragged(
            function(self.values),
            function(self.offsets),
            self.weights if self.weights is None else function(self.weights),
        )

    def tensors(self) -> Iterator[Tensor]:
        """Yield all that it holds."""
        yield from (part for part in (self.values, self.offsets, self.weights) if part is not None)

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Ragged:
        """Return a copy on a device."""
        return self.map(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def span(self, start: int, stop: int) -> Ragged:
        """Return the lists of the rows start, …, stop - 1."""
        offsets = self.offsets[start : stop + 1]
        first, last = int(offsets[0]), int(offsets[-1])
        weights = None if self.weights is None else self.weights[first:last]
        return Ragged(self.values[first:last], offsets - first, weights)

    def padded(self, length: int, *, keep: Literal["last", "first"] = "last") -> tuple[Tensor, Tensor]:
        """Return the lists as a rectangle, which is what attention and exported programs want; nothing waits for the device.

        Args:
            length: L, how many elements of a list are kept at most.
            keep: Which end of a longer list: the last elements are the latest of a history that is in order of time.

        Returns:
            The elements in their order, and 0 (the id of padding) after them, shape (B, L); and where there is one, bool, (B, L).
        """
        starts, ends = self.offsets[:-1, None], self.offsets[1:, None]
        if keep == "last":
            starts = torch.maximum(starts, ends - length)
        places = starts + torch.arange(length, device=self.offsets.device)
        there = places < ends
        if not self.values.numel():
            return self.values.new_zeros(there.shape), there
        return self.values[places.clamp(max=self.values.numel() - 1)].masked_fill(~there, 0), there


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

    def tensors(self) -> Iterator[Tensor]:
        """Yield all that it holds."""
        for feature in (*self.features.values(), *self.labels.values()):
            yield from feature.tensors() if isinstance(feature, Ragged) else (feature,)
        if self.weight is not None:
            yield self.weight

    def not_finite(self) -> list[str]:
        """Return the names of the columns that hold a number which is not finite, such as a null."""
        columns: dict[str, Feature] = {**self.features, **self.labels}
        return [
            name
            for name, column in columns.items()
            for tensor in (column.tensors() if isinstance(column, Ragged) else (column,))
            if tensor.is_floating_point() and not torch.isfinite(tensor).all()
        ]

    def parts(self, number: int) -> Iterator[Batch]:
        """Cut into so many batches of about the same size, in order; some are empty where there are fewer rows."""
        if number == 1:
            yield self
            return
        rows = self.num_rows
        for start, stop in pairwise(rows * part // number for part in range(number + 1)):
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
