"""Arrays of a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt


def read_array(path: Path, *dtypes: str, length: int | None = None, mapped: bool = False) -> npt.NDArray[Any]:
    """Read a one-dimensional array of a .npy file; object arrays (pickle) are refused.

    Args:
        path: The file.
        dtypes: Allowed types.
        length: Required length; None for any.
        mapped: Memory-map the file.

    Raises:
        ValueError: The array has another type or shape.
    """
    # The header of a mapped file is read first, so that a wrong shape allocates nothing.
    array: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    if array.ndim != 1 or array.dtype.name not in dtypes or not array.dtype.isnative:
        raise ValueError(f"{path}: {array.dtype} of shape {array.shape} is no list of {' or '.join(dtypes)}")
    if length is not None and len(array) != length:
        raise ValueError(f"{path}: {len(array)} values are no {length}")
    return array if mapped else np.array(array)
