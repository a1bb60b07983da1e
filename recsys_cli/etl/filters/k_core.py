"""KCore: values become whole numbers once, and rounds of leaving rows out go over these alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recsys_cli.etl.executor import Threads
from recsys_cli.etl.filters.flow import Flow, Mask, Masked, OpContext
from recsys_cli.etl.join_keys import canonical
from recsys_cli.events import Message
from recsys_cli.features.ops import KCore

Numbers = npt.NDArray[np.int32]
_COUNTED = 1 << 22


@dataclass
class _Batch:
    """A batch of rows.

    Attributes:
        codes: For each column the number of each row's value; 0 where it is null.
        keep: Which rows are kept so far.
    """

    codes: list[Numbers]
    keep: Mask


def choose(op: KCore, rows: Flow, context: OpContext) -> Flow:
    """Keep the rows of the core."""
    rows = context.materialize(rows)
    batches, distinct = _numbered(rows, tuple(op.columns))
    rounds = _peel(batches, distinct, tuple(op.columns.values()))
    keep = np.concatenate([batch.keep for batch in batches]) if batches else np.zeros(0, dtype=bool)
    context.emit(Message(f"{op.title}: nothing more to leave out after {rounds} round{'s' * (rounds != 1)}"))
    return Masked(rows, keep)


def _numbered(rows: Flow, names: tuple[str, ...]) -> tuple[list[_Batch], list[int]]:
    """Return the rows as numbers of their values, and for each column how many values there are."""
    batches: list[_Batch] = []
    values: list[list[pa.Array]] = [[] for _ in names]
    for batch, found in Threads().map(_encoded, rows.batches(names)):
        batches.append(batch)
        for column, part in zip(values, found, strict=True):
            column.append(part)
    distinct = []
    for position, parts in enumerate(values):
        together = pa.chunked_array(parts or [pa.nulls(0)]).combine_chunks().dictionary_encode()
        distinct.append(len(together.dictionary))
        first = 0
        for batch, part in zip(batches, parts, strict=True):
            numbers = together.indices.slice(first, len(part)).to_numpy()
            first += len(part)
            if len(part):
                np.take(numbers, batch.codes[position], out=batch.codes[position], mode="clip")
    return batches, distinct


def _encoded(batch: pa.Table) -> tuple[_Batch, list[pa.Array]]:
    """Return a batch with values numbered in it alone, and the values by number."""
    keep = np.ones(batch.num_rows, dtype=bool)
    codes, values = [], []
    for name in batch.column_names:
        encoded = canonical(batch.column(name).combine_chunks()).dictionary_encode()
        indices = encoded.indices
        if indices.null_count:
            keep &= indices.is_valid().to_numpy(zero_copy_only=False)
            indices = indices.fill_null(0)
        codes.append(np.array(indices, dtype=np.int32))
        values.append(encoded.dictionary)
    return _Batch(codes, keep), values


def _peel(batches: Sequence[_Batch], distinct: Sequence[int], least: Sequence[int]) -> int:
    """Leave out rows until every value that is left has enough of them, and return how many rounds that took."""
    counts = [np.zeros(size, dtype=np.int64) for size in distinct]
    for position, total in enumerate(counts):
        _add(total, (batch.codes[position][batch.keep] for batch in batches), 1)
    rounds = 0
    while True:
        rare = [(total < enough) & (total > 0) for total, enough in zip(counts, least, strict=True)]
        if not any(one.any() for one in rare):
            return rounds
        rounds += 1
        gone = [_leave_out(batch, rare) for batch in batches]
        for position, total in enumerate(counts):
            _add(total, (batch.codes[position][out] for batch, out in zip(batches, gone, strict=True)), -1)


def _leave_out(batch: _Batch, rare: Sequence[Mask]) -> npt.NDArray[np.int64]:
    """Leave out the rows with a rare value, and return where they are."""
    out = np.zeros(len(batch.keep), dtype=bool)
    for codes, values in zip(batch.codes, rare, strict=True):
        if len(values):
            out |= np.take(values, codes)
    out &= batch.keep
    where = np.flatnonzero(out)
    batch.keep[where] = False
    return where


def _add(total: npt.NDArray[np.int64], parts: Iterator[Numbers], sign: int) -> None:
    """Count values, some parts at a time: a count takes as long as there are values, however few the rows."""
    waiting: list[Numbers] = []
    size = 0
    for part in parts:
        waiting.append(part)
        size += len(part)
        if size >= _COUNTED:
            total += sign * np.bincount(np.concatenate(waiting), minlength=len(total))
            waiting, size = [], 0
    if size:
        total += sign * np.bincount(np.concatenate(waiting), minlength=len(total))
