"""A mini-batch of named tensors; columns are accessed by name, never by position."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Literal

import torch
from torch import Tensor


@dataclass(frozen=True)
class Ragged:
    """A ragged column: a list of values for each of B rows.

    Attributes:
        values: Concatenated elements, shape (N,).
        offsets: Start of each row's list, plus N at the end; int64, shape (B + 1,).
        weights: Weight of each element in sums over the list, float32, shape (N,); None for weight 1.
    """

    values: Tensor
    offsets: Tensor
    weights: Tensor | None = None

    def map(self, function: Callable[[Tensor], Tensor]) -> Ragged:
        """Return the lists with a function applied to each tensor."""
        return Ragged(
            function(self.values),
            function(self.offsets),
            self.weights if self.weights is None else function(self.weights),
        )

    def tensors(self) -> Iterator[Tensor]:
        """Yield all tensors."""
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

    def picked(self, rows: Tensor) -> Ragged:
        """Return the lists of some rows, shape (B,), in their order; rows may repeat."""
        lengths = self.offsets.diff()[rows]
        offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
        elements = torch.arange(int(offsets[-1]), device=offsets.device)
        elements += (self.offsets[rows] - offsets[:-1]).repeat_interleave(lengths)
        return Ragged(self.values[elements], offsets, None if self.weights is None else self.weights[elements])

    def padded(self, length: int, *, keep: Literal["last", "first"] = "last") -> tuple[Tensor, Tensor]:
        """Return elements padded with 0 to a rectangle (B, L), and their mask (B, L), without device synchronization.

        Of a longer list, `last` keeps the latest elements of a chronological history.
        """
        starts, ends = self.offsets[:-1, None], self.offsets[1:, None]
        if keep == "last":
            starts = torch.maximum(starts, ends - length)
        positions = starts + torch.arange(length, device=self.offsets.device)
        mask = positions < ends
        if not self.values.numel():
            return self.values.new_zeros(mask.shape), mask
        return self.values[positions.clamp(max=self.values.numel() - 1)].masked_fill(~mask, 0), mask


@dataclass(frozen=True)
class Padded:
    """A categorical column as a rectangle, for exported programs: models look up each id, without a search for distinct ones.

    Stands for a `Feature` in a batch; ids and lists of an exported program have this type.

    Attributes:
        values: Ids, int64: shape (B,), or (B, L) for lists, padded with any id.
        weights: Weight of each element in sums over the list, 0 for padding; float32, shape (B, L). None for single values.
    """

    values: Tensor
    weights: Tensor | None = None

    @property
    def shape(self) -> torch.Size:
        """Shape of the ids, with rows first."""
        return self.values.shape

    @property
    def device(self) -> torch.device:
        """Device of the ids."""
        return self.values.device


Feature = Tensor | Ragged


def as_lists(feature: Feature) -> Ragged:
    """Return a feature as lists; a single value is a list of one."""
    if isinstance(feature, Ragged):
        return feature
    return Ragged(feature, torch.arange(len(feature) + 1, device=feature.device))


def picked(feature: Feature, rows: Tensor) -> Feature:
    """Return some rows of a column, on its device."""
    if isinstance(feature, Ragged):
        return feature.picked(rows.to(feature.offsets.device))
    return feature[rows.to(feature.device)]


def joined(parts: Sequence[Feature]) -> Feature:
    """Concatenate the rows of one column, in the type of the first part; lists without weights get ones beside others with them."""
    lists = [part for part in parts if isinstance(part, Ragged)]
    if not lists:
        values = [part for part in parts if isinstance(part, Tensor)]
        return torch.cat([part.to(values[0].dtype) for part in values])
    ends = accumulate(part.values.numel() for part in lists)
    offsets = [lists[0].offsets, *(part.offsets[1:] + end for part, end in zip(lists[1:], ends, strict=False))]
    weights = None
    if any(part.weights is not None for part in lists):
        weights = torch.cat(
            [torch.ones(part.values.shape, device=part.values.device) if part.weights is None else part.weights
             for part in lists]
        )  # fmt: skip
    return Ragged(torch.cat([part.values.to(lists[0].values.dtype) for part in lists]), torch.cat(offsets), weights)


@dataclass(frozen=True)
class Batch:
    """A mini-batch of B rows; labels are empty at inference.

    Attributes:
        features: Features by column name: ids as int32 or int64 of shape (B,), numbers as float32 of shape (B,), lists as Ragged.
        weight: Weight of each row in the loss, float32, shape (B,); None for equal weights.
    """

    features: Mapping[str, Feature]
    labels: Mapping[str, Tensor]
    weight: Tensor | None = None

    @property
    def num_rows(self) -> int:
        """Number of rows B."""
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
        """Yield all tensors."""
        for feature in (*self.features.values(), *self.labels.values()):
            yield from feature.tensors() if isinstance(feature, Ragged) else (feature,)
        if self.weight is not None:
            yield self.weight

    def not_finite(self, filled: Collection[str] = ()) -> list[str]:
        """Return the names of columns with infinite values, or with NaN if they are not among the `filled` ones."""
        columns: dict[str, Feature] = {**self.features, **self.labels}
        return [
            name
            for name, column in columns.items()
            for tensor in (column.tensors() if isinstance(column, Ragged) else (column,))
            if tensor.is_floating_point() and (tensor.isinf() if name in filled else ~tensor.isfinite()).any()
        ]

    def parts(self, number: int) -> Iterator[Batch]:
        """Split into `number` batches of nearly equal size, in order; some may be empty."""
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
