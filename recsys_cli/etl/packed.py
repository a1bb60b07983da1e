"""Short texts on their way through scratch files: as numbers, which are moved, counted and looked up many times faster.

A column of a scratch file holds them so where none of its texts there is longer than 8 bytes; other files may hold the same
column as text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recsys_cli.features.words import pack, unpack


class Packed(pa.ExtensionType):
    """The type of texts that `words.pack` has made numbers of: equal, and in order, as the texts are."""

    def __init__(self) -> None:
        super().__init__(pa.uint64(), "recsys.packed")

    def __arrow_ext_serialize__(self) -> bytes:
        """Return nothing: there is one such type."""
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> Packed:
        """Return the type, as a file says that it has it."""
        del storage_type, serialized
        return cls()


PACKED = Packed()
pa.register_extension_type(PACKED)  # without it a file's numbers would be read as no more than numbers


def is_packed(values: pa.Array | pa.ChunkedArray) -> bool:
    """Whether these are texts as numbers."""
    return isinstance(values.type, Packed)


def packed(texts: pa.Array) -> pa.Array:
    """Return texts as numbers; as they are where one of them is too long, or ends in NUL."""
    numbers, refused = pack(texts)
    valid = texts.is_valid() if texts.null_count else None
    if refused.any() and (valid is None or (refused & valid.to_numpy(zero_copy_only=False)).any()):
        return texts
    validity = None if valid is None else valid.buffers()[1]
    storage = pa.Array.from_buffers(pa.uint64(), len(texts), [validity, pa.py_buffer(numbers)], texts.null_count)
    return pa.ExtensionArray.from_storage(PACKED, storage)


def numbers_of(values: pa.Array) -> npt.NDArray[np.uint64]:
    """Return the numbers of packed texts, shape (N,); a null has any number."""
    storage = values.storage
    found = np.frombuffer(storage.buffers()[1] or b"", dtype=np.uint64, count=storage.offset + len(storage))
    return found[storage.offset :]


def unpacked(values: pa.Array) -> pa.Array:
    """Return texts as texts, and anything else as it is."""
    if not is_packed(values):
        return values
    texts = unpack(np.where(values.is_valid().to_numpy(zero_copy_only=False), numbers_of(values), np.uint64(0)))
    texts = texts.cast(pa.string())
    if not values.null_count:
        return texts
    _, offsets, data = texts.buffers()
    return pa.Array.from_buffers(
        pa.string(), len(texts), [values.is_valid().buffers()[1], offsets, data], values.null_count
    )


def with_texts(rows: pa.Table) -> pa.Table:
    """Return rows with texts as texts."""
    for place, field in enumerate(rows.schema):
        if isinstance(field.type, Packed):
            chunks = [unpacked(chunk) for chunk in rows.column(place).chunks]
            rows = rows.set_column(place, field.name, pa.chunked_array(chunks, pa.string()))
    return rows


def joined(parts: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
    """Return parts of a column of a type as one; packed where all of them are."""
    if parts and all(map(is_packed, parts)):
        return pa.ExtensionArray.from_storage(PACKED, pa.concat_arrays([part.storage for part in parts]))
    return cast("pa.Array", pa.concat_arrays([pa.array([], kind), *map(unpacked, parts)]))
