"""In which order rows are handed out, and to whom: functions of (seed, epoch) and of the step, so nothing is stored or sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from recsys_cli.features.hashing import hash_counters, mix

ROUNDS = 4
"""Rounds of the network below; with random round functions four cannot be told from chance (Luby and Rackoff, 1988)."""

_Unsigned = npt.NDArray[np.unsignedinteger[Any]]


class Permutation:
    """Shuffle range(size) without storing the shuffle: any stretch of it is computed on its own, in time of its length.

    A generalised Feistel network (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002): a number is
    split into a row below `height` and a column below a power of two, and each half is moved in turn by a random
    function of the other. What lands beyond `size` is sent through again until it does not.

    Args:
        size: How many numbers are shuffled.
        key: What `hashing.mix` returned; another key is another order.
    """

    def __init__(self, size: int, key: int) -> None:
        self.size = size
        narrow = size < 2**31
        self._type: type[np.unsignedinteger[Any]] = np.uint32 if narrow else np.uint64
        self._index: type[np.signedinteger[Any]] = np.int32 if narrow else np.int64
        self._bits = (max(size - 1, 0).bit_length() + 1) // 2
        width, height = 1 << self._bits, max(-(-size >> self._bits), 1)
        self._height = self._type(height)
        self._tables = [
            _random_numbers(*((height, width) if number % 2 else (width, height)), mix(key, number)).astype(self._type)
            for number in range(ROUNDS)
        ]

    def __call__(self, start: int, stop: int) -> npt.NDArray[np.signedinteger[Any]]:
        """Return what stands at the positions start, …, stop - 1 of the shuffled order, as int32 where `size` allows."""
        values = self._move(np.arange(start, stop, dtype=self._type))
        while values.size and int(values.max()) >= self.size:
            beyond = np.flatnonzero(values >= self.size)
            values[beyond] = self._move(values[beyond])
        return values.view(self._index)

    def _move(self, values: _Unsigned) -> _Unsigned:
        columns = values & self._type((1 << self._bits) - 1)
        rows = values >> self._type(self._bits)
        spare, index = np.empty_like(values), np.empty(values.shape, np.intp)
        for number, table in enumerate(self._tables):
            np.copyto(index, rows if number % 2 else columns, casting="unsafe")
            np.take(table, index, out=spare, mode="clip")
            if number % 2:
                columns ^= spare
            else:
                rows += spare
                # modulo height: the difference of what is below it wraps around to a huge number
                np.minimum(rows, np.subtract(rows, self._height, out=spare), out=rows)
        rows <<= self._type(self._bits)
        rows |= columns
        return rows


def _random_numbers(count: int, below: int, key: int) -> npt.NDArray[np.uint64]:
    return hash_counters(np.arange(count, dtype=np.uint64), key) % np.uint64(below)


def pieces(num_rows: int, *, parts: int = 1, rank: int = 0, world_size: int = 1) -> list[tuple[int, int]]:
    """Return the rows of a step that a rank gets: a first position, and the one after the last, for each part of the step.

    The step is cut into parts, and each part into one piece for each rank. So a part is the same rows for any number of ranks,
    and batch normalisation, which sees the rows of a part together, sees the same ones. Sizes of parts differ by one at most,
    and so do those of a part's pieces.

    Args:
        num_rows: Of the step, over all ranks.
        parts: How many parts gradients are computed in.
        rank: Whose pieces.
        world_size: How many ranks share the step.
    """
    found = []
    for part in range(parts):
        start, stop = num_rows * part // parts, num_rows * (part + 1) // parts
        taken = stop - start
        found.append((start + taken * rank // world_size, start + taken * (rank + 1) // world_size))
    return found


@dataclass(frozen=True)
class BatchPartition:
    """Deal rows to ranks: the same number of steps for every rank, each row exactly once over all of them.

    A step takes the next `batch_size` rows of the order, whatever the number of ranks, and cuts them as `pieces` does; a piece is
    empty where there are more ranks than rows. The last step takes what is left. Where that is a single row, which batch
    normalisation cannot use, it joins the step before (unless batches are of one row anyway).
    """

    num_rows: int
    batch_size: int
    world_size: int = 1
    parts: int = 1

    @property
    def num_steps(self) -> int:
        """Steps of one epoch, on every rank."""
        whole, left = divmod(self.num_rows, self.batch_size)
        return whole if whole and left < min(2, self.batch_size) else whole + (left > 0)

    def step(self, step: int) -> tuple[int, int]:
        """Return the first position of a step, and the one after its last."""
        start = step * self.batch_size
        return start, self.num_rows if step == self.num_steps - 1 else start + self.batch_size

    def spans(self, step: int, rank: int = 0) -> list[tuple[int, int]]:
        """Return the stretches that a rank gets in a step, ascending: the first position, and the one after the last.

        One stretch may be empty where a rank gets nothing; of several none is.
        """
        start, stop = self.step(step)
        if self.world_size == 1:
            return [(start, stop)]  # its parts lie one after the other
        found = pieces(stop - start, parts=self.parts, rank=rank, world_size=self.world_size)
        there = [(start + first, start + last) for first, last in found if last > first]
        return there or [(start, start)]
