"""Users and items with enough interactions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import AfterValidator, Field

from recsys_cli.cpu import Threads
from recsys_cli.events import Message
from recsys_cli.ops.flow import Flow, Mask, Masked, OpContext
from recsys_cli.ops.op import FrozenDict, RowFilter
from recsys_cli.ops.values import canonical
from recsys_cli.packages import np, npt, pa

Codes: TypeAlias = "npt.NDArray[np.int32]"
_ROWS_PER_COUNT = 1 << 22


class KCore(RowFilter):
    """Keep the k-core: interactions with a minimum number of remaining interactions for each user and item.

    The largest such set, independent of the order: rare values are dropped repeatedly until all are frequent enough. A
    single column is counted once. The whole input is filtered before the split, held-out interactions included, as in
    the literature. With split.method=files only train is filtered and counted, for comparable test rows.
    Nulls: rows with a null or NaN in a column are dropped; -0.0 equals 0.0.
    Fitted: nothing.
    Output: fewer rows, possibly none; no column changes.
    """

    train_only: ClassVar[bool] = True

    op: Literal["KCore"] = "KCore"
    columns: Annotated[dict[str, Annotated[int, Field(ge=1)]], Field(min_length=1), AfterValidator(FrozenDict)]
    """Minimum count by column, such as `{user: 5, item: 5}`; no lists."""

    @property
    def title(self) -> str:
        """Name in messages."""
        return f"{self.name} {', '.join(f'{name} ≥ {minimum}' for name, minimum in self.columns.items())}"

    def choose(self, rows: Flow, context: OpContext) -> Flow:
        """Keep the rows of the core, by iterative removal of rare values, on integer codes in memory."""
        rows = context.materialize(rows)
        batches, distinct = _numbered(rows, tuple(self.columns))
        rounds = _peel(batches, distinct, tuple(self.columns.values()))
        keep = np.concatenate([batch.keep for batch in batches]) if batches else np.zeros(0, dtype=bool)
        context.emit(Message(f"{self.title}: converged after {rounds} round{'s' * (rounds != 1)}"))
        return Masked(rows, keep)


@dataclass
class _Batch:
    """A batch of rows: codes of the values by column, 0 for null, and a mask of the rows kept so far."""

    codes: list[Codes]
    keep: Mask


def _numbered(rows: Flow, names: tuple[str, ...]) -> tuple[list[_Batch], list[int]]:
    """Return the batches as codes, and the number of distinct values by column."""
    batches: list[_Batch] = []
    values: list[list[pa.Array]] = [[] for _ in names]
    for batch, batch_values in Threads().map(_encoded, rows.batches(names)):
        batches.append(batch)
        for column, part in zip(values, batch_values, strict=True):
            column.append(part)
    distinct = []
    for position, parts in enumerate(values):
        encoded = pa.chunked_array(parts or [pa.nulls(0)]).combine_chunks().dictionary_encode()
        distinct.append(len(encoded.dictionary))
        indices = encoded.indices.fill_null(0).to_numpy()  # nulls: a column without a type, of no kept row
        first = 0
        for batch, part in zip(batches, parts, strict=True):
            numbers = indices[first : first + len(part)]
            first += len(part)
            if len(part):
                np.take(numbers, batch.codes[position], out=batch.codes[position], mode="clip")
    return batches, distinct


def _encoded(batch: pa.Table) -> tuple[_Batch, list[pa.Array]]:
    """Return a batch with codes of its own, and the values by code."""
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


def _peel(batches: Sequence[_Batch], distinct: Sequence[int], minimums: Sequence[int]) -> int:
    """Remove rows until every value has its minimum count; return the number of rounds."""
    counts = [np.zeros(size, dtype=np.int64) for size in distinct]
    for position, total in enumerate(counts):
        _add(total, (batch.codes[position][batch.keep] for batch in batches), 1)
    rounds = 0
    while True:
        rare = [(total < minimum) & (total > 0) for total, minimum in zip(counts, minimums, strict=True)]
        if not any(mask.any() for mask in rare):
            return rounds
        rounds += 1
        removed = [_remove(batch, rare) for batch in batches]
        for position, total in enumerate(counts):
            _add(total, (batch.codes[position][rows] for batch, rows in zip(batches, removed, strict=True)), -1)


def _remove(batch: _Batch, rare: Sequence[Mask]) -> npt.NDArray[np.int64]:
    mask = np.zeros(len(batch.keep), dtype=bool)
    for codes, values in zip(batch.codes, rare, strict=True):
        if len(values):
            mask |= np.take(values, codes)
    mask &= batch.keep
    positions = np.flatnonzero(mask)
    batch.keep[positions] = False
    return positions


def _add(total: npt.NDArray[np.int64], parts: Iterator[Codes], sign: int) -> None:
    """Add counts, several parts at a time: a bincount costs the number of values, even for few rows."""
    pending: list[Codes] = []
    size = 0
    for part in parts:
        pending.append(part)
        size += len(part)
        if size >= _ROWS_PER_COUNT:
            total += sign * np.bincount(np.concatenate(pending), minlength=len(total))
            pending, size = [], 0
    if size:
        total += sign * np.bincount(np.concatenate(pending), minlength=len(total))
