"""Texts as 64-bit words: what hashes them, and what makes numbers of those that are short enough."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

WORD_BYTES = 8
BLOCK_ROWS = 1 << 15
"""How many texts are calculated with at a time: few enough to stay in the processor's cache."""
_ENDS = np.array([(1 << 8 * num_bytes) - 1 for num_bytes in range(WORD_BYTES + 1)], dtype=np.uint64)
"""The mask that keeps so many bytes of a word."""


@dataclass(frozen=True)
class Words:
    """N texts, by the words of their UTF-8 bytes.

    Attributes:
        starts: Where each text begins, in bytes; shape (N,).
        lengths: How many bytes it has; shape (N,).
        words: All bytes as little-endian words, and a word of zeros behind them.
    """

    starts: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    words: npt.NDArray[np.uint64]

    @property
    def have_nul(self) -> bool:
        """Whether a byte is 0."""
        size = int(self.starts[-1] + self.lengths[-1]) if len(self.starts) else 0
        return size > 0 and int(self.words.astype("<u8", copy=False).view(np.uint8)[:size].min()) == 0

    @classmethod
    def of(cls, texts: pa.Array) -> Words:
        """Take an array of texts or bytes as Arrow stores them; a null has any bytes."""
        is_large = pa.types.is_large_string(texts.type) or pa.types.is_large_binary(texts.type)
        if not is_large and not pa.types.is_string(texts.type) and not pa.types.is_binary(texts.type):
            is_view_of_bytes = str(texts.type).startswith("binary")
            texts, is_large = texts.cast(pa.large_binary() if is_view_of_bytes else pa.large_string()), True
        _, positions, data = texts.buffers()
        if positions is None or len(texts) == 0:
            nothing = np.zeros(len(texts), dtype=np.int64)
            return cls(nothing, nothing, np.zeros(1, dtype=np.uint64))
        found = np.frombuffer(positions, np.int64 if is_large else np.int32, count=texts.offset + len(texts) + 1)
        offsets = found[texts.offset :].astype(np.int64)
        first, last = int(offsets[0]), int(offsets[-1])
        words = np.zeros((last - first) // WORD_BYTES + 2, dtype="<u8")
        if last > first:
            words.view(np.uint8)[: last - first] = np.frombuffer(data, np.uint8, count=last)[first:]
        return cls(offsets[:-1] - first, np.diff(offsets), words.astype(np.uint64, copy=False))

    def word(self, number: int, rows: npt.NDArray[np.intp] | slice = slice(None)) -> npt.NDArray[np.uint64]:
        """Return one word of some texts, zeros where they end; each of them has to begin before it ends.

        Args:
            number: Which word.
            rows: Of which texts.
        """
        if number == 0 and isinstance(rows, slice) and (found := self._whole_words()) is not None:
            return found[rows]
        starts = self.starts[rows] + WORD_BYTES * number
        positions, shifts = starts >> 3, ((starts & 7) << 3).view(np.uint64)
        found = self.words[positions]
        if shifts.any():
            # In two steps, because a shift by all 64 bits has no defined result.
            found = (found >> shifts) | ((self.words[positions + 1] << (np.uint64(63) - shifts)) << np.uint64(1))
        return found & _ENDS[np.minimum(self.lengths[rows] - WORD_BYTES * number, WORD_BYTES)]

    def _whole_words(self) -> npt.NDArray[np.uint64] | None:
        """Return the words of texts of 8 bytes each, or none where it is null as a rule; None if there are others."""
        whole = self.lengths == WORD_BYTES
        count = np.count_nonzero(whole)
        if count == len(whole):
            return self.words[:count]
        if count * WORD_BYTES != self.starts[-1] + self.lengths[-1]:
            return None
        found = np.zeros(len(whole), dtype=np.uint64)
        found[whole] = self.words[:count]
        return found


def pack(texts: pa.Array) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
    """Return texts as numbers that are equal, and in order, as the texts are, and which of them that cannot be said of.

    Args:
        texts: N texts; a null has any number.

    Returns:
        N numbers: the UTF-8 bytes, the first one the highest. N flags: texts of more than 8 bytes, or with a NUL at the end.
    """
    refused = np.zeros(len(texts), dtype=bool)
    if (whole := _packed_whole(texts)) is not None:
        return whole, refused
    numbers = np.empty(len(texts), dtype=np.uint64)
    for start in range(0, len(texts), BLOCK_ROWS):
        block = slice(start, min(start + BLOCK_ROWS, len(texts)))
        words = Words.of(texts.slice(start, BLOCK_ROWS))
        numbers[block] = words.word(0).byteswap()
        if int(words.lengths.max()) > WORD_BYTES:
            refused[block] = words.lengths > WORD_BYTES
        if words.have_nul:
            last = (words.lengths.clip(1, WORD_BYTES) - 1).view(np.uint64) << np.uint64(3)
            is_nul = ((numbers[block] >> (np.uint64(56) - last)) & np.uint64(0xFF)) == 0
            refused[block] |= is_nul & (words.lengths > 0)
    return numbers, refused


def _packed_whole(texts: pa.Array) -> npt.NDArray[np.uint64] | None:
    """Return what `pack` does for texts of 8 bytes each, or none where it is empty or null; None if there are others.

    Such are hashes and keys in hexadecimal; they take a fifth of the time that others take.
    """
    if not pa.types.is_string(texts.type) or len(texts) == 0:
        return None
    _, positions, data = texts.buffers()
    offsets = np.frombuffer(positions, np.int32, count=texts.offset + len(texts) + 1)[texts.offset :]
    first, last = int(offsets[0]), int(offsets[-1])
    is_whole = np.diff(offsets) == WORD_BYTES
    count = np.count_nonzero(is_whole)
    if count == 0 or count * WORD_BYTES != last - first:
        return None
    words = np.frombuffer(data, ">u8", count=count, offset=first)
    if count == len(texts):
        numbers = words.astype(np.uint64)
    else:
        numbers = np.zeros(len(texts), dtype=np.uint64)
        numbers[is_whole] = words
    ends_in_nul = np.count_nonzero((numbers & _ENDS[1]) == 0) > len(texts) - count
    return None if ends_in_nul else numbers


def lengths(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Return how many bytes the texts have that `pack` made numbers of."""
    found = np.full(len(numbers), WORD_BYTES, dtype=np.int64)
    short = np.flatnonzero((numbers & _ENDS[1]) == 0)
    for num_bytes in range(1, WORD_BYTES + 1):
        found[short] -= (numbers[short] & _ENDS[num_bytes]) == 0
    return found


def unpack(numbers: npt.NDArray[np.uint64]) -> pa.Array:
    """Return the texts (large_string) of numbers that `pack` made."""
    sizes = lengths(numbers)
    data = numbers.byteswap().astype("<u8", copy=False).view(np.uint8).reshape(-1, WORD_BYTES)
    if (sizes != WORD_BYTES).any():
        data = data[np.arange(WORD_BYTES) < sizes[:, None]]
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.large_string(), len(numbers), buffers)
