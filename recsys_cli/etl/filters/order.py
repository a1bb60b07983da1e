"""Grouping and ordering of rows by a stable sort of integer codes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

Codes = npt.NDArray[np.uint64]
Positions = npt.NDArray[np.int64]
_SIGN = np.uint64(1 << 63)


@dataclass(frozen=True)
class GroupOrder:
    """A permutation that makes groups contiguous and ordered.

    Attributes:
        order: Positions of the rows; shape (N,).
        starts: Start of each group within `order`; shape (G,).
    """

    order: Positions
    starts: Positions

    @property
    def ends(self) -> Positions:
        """End of each group within `order`, exclusive; shape (G,)."""
        return np.append(self.starts[1:], len(self.order)).astype(np.int64)

    @property
    def numbers(self) -> Positions:
        """Group number of each row of `order`; shape (N,)."""
        return np.repeat(np.arange(len(self.starts)), np.diff(self.starts, append=len(self.order)))


def group(rows: pa.Table, by: Sequence[str], order_by: Sequence[str]) -> GroupOrder:
    """Group rows of complete groups by some columns, and order each group by others, then by position.

    Keys have no NaN and -0.0. Null sorts last, and is a key of its own; in `order_by`, NaN equals null.
    """
    keys = [_codes(rows.column(name)) for name in by]
    order = np.arange(rows.num_rows)
    for codes in [*keys, *(_codes(rows.column(name)) for name in order_by)][::-1]:
        order = order[_stable(codes[order])]
    new = np.zeros(rows.num_rows, dtype=bool)
    new[:1] = True
    for codes in keys:
        ordered = codes[order]
        new[1:] |= ordered[1:] != ordered[:-1]
    return GroupOrder(order, np.flatnonzero(new))


def _stable(codes: Codes) -> Positions:
    """Return the stable argsort of codes.

    Code and position are packed into 64 bits if they fit: a sort of integers is many times faster than an argsort.
    """
    bits = max(1, len(codes) - 1).bit_length()
    if not len(codes) or int(codes.max()).bit_length() + bits > 64:
        return np.argsort(codes, kind="stable")
    packed = codes << np.uint64(bits)
    packed |= np.arange(len(codes), dtype=np.uint64)
    packed.sort()
    packed &= np.uint64((1 << bits) - 1)
    return packed.view(np.int64)


def _codes(values: pa.ChunkedArray) -> Codes:
    """Return order-preserving codes from 0; null has the greatest."""
    series = pl.Series(pl.from_arrow(values))
    if series.dtype.is_float():
        series = series.fill_nan(None)
    valid = series.is_not_null().to_numpy()
    if not valid.any():
        return np.zeros(len(series), dtype=np.uint64)
    codes = _bits(series)
    low, high = codes[valid].min(), codes[valid].max()
    if valid.all():
        return codes - low
    if int(high) - int(low) == 2**64 - 1:  # the full range has no free code for null
        codes, low, high = _ranks(series), np.uint64(1), np.uint64(len(series))
    return np.where(valid, codes - low, high - low + np.uint64(1))


def _bits(series: pl.Series) -> Codes:
    """Return order-preserving unsigned integers, arbitrary for null."""
    kind = series.dtype
    if kind.is_float():
        bits = (series.cast(pl.Float64).fill_null(0.0).to_numpy() + 0.0).view(np.uint64)  # -0.0 + 0.0 is 0.0
        return np.where(bits & _SIGN, ~bits, bits | _SIGN)
    if kind == pl.UInt64:
        return series.fill_null(0).to_numpy()
    if kind.is_integer() or isinstance(kind, pl.Boolean | pl.Date | pl.Datetime | pl.Duration):
        return series.to_physical().cast(pl.Int64).fill_null(0).to_numpy().view(np.uint64) ^ _SIGN
    return _ranks(series)


def _ranks(series: pl.Series) -> Codes:
    return series.rank("dense").cast(pl.UInt64).fill_null(0).to_numpy()
