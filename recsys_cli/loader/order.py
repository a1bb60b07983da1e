"""In which order rows are handed out, and to whom: functions of (seed, epoch) and of the step, so nothing is stored or sent."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from recsys_cli.features.hashing import hash_counters, mix

ROUNDS = 4
"""Rounds of the network below; with random round functions four cannot be told from chance (Luby and Rackoff, 1988)."""

Indices = npt.NDArray[np.int64]


class Permutation:
    """Shuffle range(size) without storing the shuffle: any stretch of it is computed on its own, in time of its length.

    A generalised Feistel network (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002): a number is
    split into a row of `height` and a column of `width` (a power of two), and each half is moved in turn by a random
    function of the other. What lands beyond `size` is sent through again until it does not.

    Args:
        size: How many numbers are shuffled.
        key: What `hashing.mix` returned; another key is another order.
    """

    def __init__(self, size: int, key: int) -> None:
        self.size = size
        self._bits = (max(size - 1, 0).bit_length() + 1) // 2
        width = 1 << self._bits
        self._height = -(-size // width)
        self._tables = [
            _random_table(
                self._height if number % 2 else width, width if number % 2 else self._height, mix(key, number)
            )
            for number in range(ROUNDS)
        ]

    def __call__(self, start: int, stop: int) -> Indices:
        """Return what stands at the positions start, …, stop - 1 of the shuffled order."""
        values = self._move(np.arange(start, stop, dtype=np.int64))
        while values.size and int(values.max()) >= self.size:
            beyond = np.flatnonzero(values >= self.size)
            values[beyond] = self._move(values[beyond])
        return values

    def _move(self, values: Indices) -> Indices:
        columns = values & ((1 << self._bits) - 1)
        values >>= self._bits
        rows, spare = values, np.empty_like(values)
        for number, table in enumerate(self._tables):
            if number % 2:
                np.take(table, rows, out=spare, mode="clip")
                columns ^= spare
            else:
                np.take(table, columns, out=spare, mode="clip")
                rows += spare
                np.subtract(rows, self._height, out=spare)
                # rows modulo height: below it the difference is negative, which is huge when read as unsigned
                np.minimum(rows.view(np.uint64), spare.view(np.uint64), out=rows.view(np.uint64))
        rows <<= self._bits
        rows |= columns
        return rows


def _random_table(size: int, below: int, key: int) -> Indices:
    numbers = hash_counters(np.arange(size, dtype=np.uint64), key)
    return (numbers % np.uint64(max(below, 1))).astype(np.int64)


@dataclass(frozen=True)
class Deal:
    """Deal rows to ranks: the same number of steps for every rank, each row exactly once over all of them.

    A step takes the next `batch_size * world_size` rows of the order, whatever the number of ranks, and cuts them into
    one contiguous piece for each rank, whose sizes differ by one at most. The last step takes what is left. Where that
    is not two rows for each rank (or one, with batches of one), which would leave a rank with nothing or batch
    normalisation with a single row, it joins the step before: the last batch is then larger by two rows at most. Only
    data with fewer rows than ranks gives some of them an empty batch.
    """

    num_rows: int
    batch_size: int
    world_size: int = 1

    @property
    def num_steps(self) -> int:
        """Steps of one epoch, on every rank."""
        step = self.batch_size * self.world_size
        whole, left = divmod(self.num_rows, step)
        least = min(2, self.batch_size) * self.world_size
        return whole if whole and left < least else whole + (left > 0)

    def span(self, step: int, rank: int = 0) -> tuple[int, int]:
        """Return the first position that a rank gets in a step, and the one after its last."""
        size = self.batch_size * self.world_size
        start = step * size
        stop = self.num_rows if step == self.num_steps - 1 else start + size
        taken = stop - start
        return start + taken * rank // self.world_size, start + taken * (rank + 1) // self.world_size
