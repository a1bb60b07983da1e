"""Text as 64-bit words: for hashes, and for short text as sortable numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from recsys_cli.packages import np, npt, pa

WORD_BYTES = 8
BLOCK_ROWS = 1 << 15
"""Texts per block, small enough for the processor cache."""


@cache
def _masks() -> npt.NDArray[np.uint64]:
    """Return the masks of the first bytes of a word, by number of bytes."""
    return np.array([(1 << 8 * num_bytes) - 1 for num_bytes in range(WORD_BYTES + 1)], dtype=np.uint64)


@dataclass(frozen=True)
class Words:
    """N texts as words of UTF-8 bytes.

    Attributes:
        starts: First byte of each text; shape (N,).
        lengths: Number of bytes of each text; shape (N,).
        words: All bytes as little-endian words, followed by a word of zeros.
    """

    starts: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    words: npt.NDArray[np.uint64]

    @property
    def have_nul(self) -> bool:
        """Whether any byte is 0."""
        size = int(self.starts[-1] + self.lengths[-1]) if len(self.starts) else 0
        return size > 0 and int(self.words.astype("<u8", copy=False).view(np.uint8)[:size].min()) == 0

    @classmethod
    def of(cls, texts: pa.Array) -> Words:
        """Read an Arrow array of text or bytes; bytes of nulls are arbitrary."""
        is_large = pa.types.is_large_string(texts.type) or pa.types.is_large_binary(texts.type)
        if not is_large and not pa.types.is_string(texts.type) and not pa.types.is_binary(texts.type):
            is_view_of_bytes = str(texts.type).startswith("binary")
            texts, is_large = texts.cast(pa.large_binary() if is_view_of_bytes else pa.large_string()), True
        _, positions, data = texts.buffers()
        if positions is None or len(texts) == 0:
            nothing = np.zeros(len(texts), dtype=np.int64)
            return cls(nothing, nothing, np.zeros(1, dtype=np.uint64))
        ends = np.frombuffer(positions, np.int64 if is_large else np.int32, count=texts.offset + len(texts) + 1)
        offsets = ends[texts.offset :].astype(np.int64)
        first, last = int(offsets[0]), int(offsets[-1])
        words = np.zeros((last - first) // WORD_BYTES + 2, dtype="<u8")
        if last > first:
            words.view(np.uint8)[: last - first] = np.frombuffer(data, np.uint8, count=last)[first:]
        return cls(offsets[:-1] - first, np.diff(offsets), words.astype(np.uint64, copy=False))

    def text(self, row: int) -> bytes:
        """Return the bytes of one text."""
        first = int(self.starts[row])
        return self.words.astype("<u8", copy=False).view(np.uint8)[first : first + int(self.lengths[row])].tobytes()

    def word(self, number: int, rows: npt.NDArray[np.intp] | slice = slice(None)) -> npt.NDArray[np.uint64]:
        """Return word `number` of each text, padded with zeros; each has to have one."""
        starts = self.starts[rows] + WORD_BYTES * number
        positions, shifts = starts >> 3, ((starts & 7) << 3).view(np.uint64)
        words = self.words[positions]
        if shifts.any():
            # In two steps, because a shift by 64 bits is undefined.
            words = (words >> shifts) | ((self.words[positions + 1] << (np.uint64(63) - shifts)) << np.uint64(1))
        return words & _masks()[np.minimum(self.lengths[rows] - WORD_BYTES * number, WORD_BYTES)]


def pack(texts: pa.Array) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
    """Pack N texts into numbers with the same equality and order, and flag texts without such a number.

    A number has the UTF-8 bytes, the first as the highest; for null it is arbitrary. Texts of more than 8 bytes, or
    with a final NUL, are flagged.
    """
    refused = np.zeros(len(texts), dtype=bool)
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


def lengths(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Return the number of bytes of packed texts."""
    sizes = np.full(len(numbers), WORD_BYTES, dtype=np.int64)
    short = np.flatnonzero((numbers & _masks()[1]) == 0)
    for num_bytes in range(1, WORD_BYTES + 1):
        sizes[short] -= (numbers[short] & _masks()[num_bytes]) == 0
    return sizes


def unpack(numbers: npt.NDArray[np.uint64]) -> pa.Array:
    """Return the texts (large_string) of packed numbers."""
    sizes = lengths(numbers)
    data = numbers.byteswap().astype("<u8", copy=False).view(np.uint8).reshape(-1, WORD_BYTES)
    if (sizes != WORD_BYTES).any():
        data = data[np.arange(WORD_BYTES) < sizes[:, None]]
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.large_string(), len(numbers), buffers)
