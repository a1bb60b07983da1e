"""Order of rows and their partition over ranks, as pure functions of (seed, epoch) and the step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from recsys_cli.batch import Batch
from recsys_cli.errors import ConfigError
from recsys_cli.features.hashing import hash_counters, mix

ROUNDS = 4
"""Rounds of the Feistel network; four with random round functions are pseudorandom (Luby and Rackoff, 1988)."""

_Unsigned = npt.NDArray[np.unsignedinteger[Any]]


class Permutation:
    """Pseudorandom permutation of range(size) without storage; any span takes time proportional to its length.

    A generalized Feistel network (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002): a number is
    split into a row below `height` and a column below a power of two, and each half is shifted in turn by a random
    function of the other. Results of `size` or more pass through the network again (cycle walking). Keys come from
    `hashing.mix`.
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
            (hash_counters(np.arange(count, dtype=np.uint64), mix(key, number)) % np.uint64(below)).astype(self._type)
            for number in range(ROUNDS)
            for count, below in [(height, width) if number % 2 else (width, height)]
        ]

    def __call__(self, start: int, stop: int) -> npt.NDArray[np.signedinteger[Any]]:
        """Return the values at positions start, …, stop - 1; int32 if `size` fits, else int64."""
        values = self._permute(np.arange(start, stop, dtype=self._type))
        while values.size and int(values.max()) >= self.size:
            beyond = np.flatnonzero(values >= self.size)
            values[beyond] = self._permute(values[beyond])
        return values.view(self._index)

    def _permute(self, values: _Unsigned) -> _Unsigned:
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
                # modulo height: for rows below it, the unsigned difference wraps around to a huge number
                np.minimum(rows, np.subtract(rows, self._height, out=spare), out=rows)
        rows <<= self._type(self._bits)
        rows |= columns
        return rows


def pieces(num_rows: int, *, parts: int = 1, rank: int = 0, world_size: int = 1) -> list[tuple[int, int]]:
    """Return the pieces of a rank in a step, one span (first, last + 1) per part.

    A step is split into parts (gradient accumulation), and each part into one piece per rank, of sizes that differ by
    at most 1. A part has the same rows, and thus the same batch statistics, for any number of ranks.
    """
    spans = []
    for part in range(parts):
        start, stop = num_rows * part // parts, num_rows * (part + 1) // parts
        size = stop - start
        spans.append((start + size * rank // world_size, start + size * (rank + 1) // world_size))
    return spans


@dataclass(frozen=True)
class BatchPartition:
    """Partition of an epoch into steps and of steps over ranks: equal steps on all ranks, each row exactly once.

    With more ranks than rows, some pieces of a step are empty. A single remaining row, too few for batch normalization,
    joins the last step, unless `batch_size` is 1.
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
        """Return the span of a step: first and last + 1."""
        start = step * self.batch_size
        return start, self.num_rows if step == self.num_steps - 1 else start + self.batch_size

    def spans(self, step: int, rank: int = 0) -> list[tuple[int, int]]:
        """Return the non-empty spans of a rank in a step, ascending; one empty span for a rank without rows."""
        start, stop = self.step(step)
        if self.world_size == 1:
            return [(start, stop)]  # the parts are adjacent
        spans = pieces(stop - start, parts=self.parts, rank=rank, world_size=self.world_size)
        return [(start + first, start + last) for first, last in spans if last > first] or [(start, start)]


class EpochSteps(ABC):
    """Iterable over the batches of an epoch, with steps and parts as in `BatchPartition`.

    An iteration starts at step 0, or at the step of a preceding `load_state_dict`. `set_epoch` selects another order.

    Raises:
        ConfigError: `batch_size` or `rank` is invalid.
    """

    def __init__(self, num_rows: int, *, batch_size: int, rank: int, world_size: int, parts: int) -> None:
        if batch_size < 1 or not 0 <= rank < world_size:
            raise ConfigError(f"a loader cannot have batch_size={batch_size}, rank={rank} of {world_size}")
        self.num_rows, self.batch_size = num_rows, batch_size
        self._partition = BatchPartition(num_rows, batch_size, world_size, parts)
        self._rank = rank
        self._epoch, self._step, self._start = 0, 0, 0

    def __len__(self) -> int:
        """Steps of an epoch, the same on every rank."""
        return self._partition.num_steps

    def step_rows(self, step: int) -> int:
        """Return the rows of a step over all ranks."""
        start, stop = self._partition.step(step)
        return stop - start

    def __iter__(self) -> Iterator[Batch]:
        self._step, self._start = self._start, 0
        return self._batches(self._step)

    def set_epoch(self, epoch: int) -> None:
        """Select the epoch of the next iteration; a change of epoch resets the step to 0."""
        if epoch != self._epoch:
            self._epoch, self._step, self._start = epoch, 0, 0

    def state_dict(self) -> dict[str, int]:
        """Return the position: epoch and number of yielded batches."""
        return {"epoch": self._epoch, "step": self._step}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Set the start of the next iteration to a position of `state_dict`."""
        self._epoch = int(state["epoch"])
        self._step = self._start = int(state["step"])

    @abstractmethod
    def _batches(self, first: int) -> Iterator[Batch]:
        """Yield this rank's batches of the current epoch from a step on; `_step` counts yielded batches."""
