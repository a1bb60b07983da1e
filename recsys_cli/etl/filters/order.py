"""Rows of whole groups brought together and put in order: columns become whole numbers, and these are sorted."""

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
class Grouped:
    """The order in which groups stand one after the other, each in its own order.

    Attributes:
        order: The positions of N rows, in that order.
        starts: Where in it each of G groups begins.
    """

    order: Positions
    starts: Positions

    @property
    def ends(self) -> Positions:
        """Where each group ends, which is behind its last row."""
        return np.append(self.starts[1:], len(self.order)).astype(np.int64)

    @property
    def numbers(self) -> Positions:
        """For each row in that order the number of its group."""
        return np.repeat(np.arange(len(self.starts)), np.diff(self.starts, append=len(self.order)))


def group(rows: pa.Table, by: Sequence[str], order_by: Sequence[str]) -> Grouped:
    """Find the groups of rows that are equal in some columns, and order each by others and then by position.

    Args:
        rows: The rows, of whole groups.
        by: The columns of the group, without NaN and -0.0; null is a value like any other, and the last.
        order_by: The columns of the order; NaN is null, and null comes last.
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
    return Grouped(order, np.flatnonzero(new))


def _stable(codes: Codes) -> Positions:
    """Return the positions of numbers in ascending order, equal ones as they stand.

    Number and position are sorted as one, where they fit into 64 bits: many times faster than an argsort.
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
    """Return whole numbers that are in the order of the values, from 0 on, and equal where these are; of null the greatest."""
    known = pl.Series(pl.from_arrow(values))
    if known.dtype.is_float():
        known = known.fill_nan(None)
    there = known.is_not_null().to_numpy()
    if not there.any():
        return np.zeros(len(known), dtype=np.uint64)
    codes = _bits(known)
    low, high = codes[there].min(), codes[there].max()
    if there.all():
        return codes - low
    if int(high) - int(low) == 2**64 - 1:  # no number is left for null
        codes, low, high = _ranks(known), np.uint64(1), np.uint64(len(known))
    return np.where(there, codes - low, high - low + np.uint64(1))


def _bits(known: pl.Series) -> Codes:
    """Return the values as unsigned numbers in their order; those of null mean nothing."""
    kind = known.dtype
    if kind.is_float():
        bits = (known.cast(pl.Float64).fill_null(0.0).to_numpy() + 0.0).view(np.uint64)  # -0.0 + 0.0 is 0.0
        return np.where(bits & _SIGN, ~bits, bits | _SIGN)
    if kind == pl.UInt64:
        return known.fill_null(0).to_numpy()
    if kind.is_integer() or isinstance(kind, pl.Boolean | pl.Date | pl.Datetime | pl.Duration):
        return known.to_physical().cast(pl.Int64).fill_null(0).to_numpy().view(np.uint64) ^ _SIGN
    return _ranks(known)


def _ranks(known: pl.Series) -> Codes:
    return known.rank("dense").cast(pl.UInt64).fill_null(0).to_numpy()
