"""Arrays of a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt


def read_array(
    path: Path, *dtypes: str, length: int | None = None, below: int | None = None, mapped: bool = False
) -> npt.NDArray[Any]:
    """Read a one-dimensional array of a .npy file; object arrays (pickle) are refused.

    Args:
        path: The file.
        dtypes: Allowed types.
        length: Required length; None for any.
        below: Upper bound of ids from 0; None for other values.
        mapped: Memory-map the file.

    Raises:
        ValueError: The array has another type or shape, or an id is out of range.
    """
    # The header of a mapped file is read first, so that a wrong shape allocates nothing.
    try:
        array: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (EOFError, ValueError):  # the command line takes EOFError for Ctrl-D
        raise ValueError(f"{path}: no NumPy array") from None
    if array.ndim != 1 or array.dtype.name not in dtypes or not array.dtype.isnative:
        raise ValueError(f"{path}: {array.dtype} of shape {array.shape} is no list of {' or '.join(dtypes)}")
    if length is not None and len(array) != length:
        raise ValueError(f"{path}: {len(array)} values are no {length}")
    if below is not None and len(array) and not 0 <= array.min() <= array.max() < below:
        raise ValueError(f"{path}: the ids from {array.min()} to {array.max()} are not from 0 to {below - 1}")
    return array if mapped else np.array(array)


def read_offsets(path: Path, *, length: int | None = None) -> npt.NDArray[Any]:
    """Memory-map the offsets of lists, ascending from 0; arguments and errors as of `read_array`."""
    offsets = read_array(path, "int64", length=length, mapped=True)
    if not len(offsets) or offsets[0] or (offsets[1:] < offsets[:-1]).any():
        raise ValueError(f"{path}: the offsets do not ascend from 0")
    return offsets
