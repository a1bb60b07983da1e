"""Inputs of exported programs as NumPy arrays, from raw columns and encoded features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from recsys_cli.batch import Feature, Ragged
from recsys_cli.errors import DataError
from recsys_cli.features.columns import row_column
from recsys_cli.serving.export.inputs import Input, length_of

Array = npt.NDArray[Any]
_DTYPES: Mapping[str, Any] = {
    "int64": np.int64, "float32": np.float32, "float64": np.float64, "bool": np.bool_, "string": object,
}  # fmt: skip


def feed(
    inputs: Sequence[Input], columns: Mapping[str, Sequence[Any]], features: Mapping[str, Feature]
) -> dict[str, Array]:
    """Return the inputs of a program.

    Args:
        inputs: Inputs of the program.
        columns: Raw values by column, None for null.
        features: Encoded features by column, with the table rows of keys under `row_column`.

    Raises:
        DataError: A raw column is missing, or a value does not fit its type.
    """
    weights = {name: feature for name, feature in features.items() if isinstance(feature, Ragged)}
    fed = {}
    for one in inputs:
        if one.of is not None:
            fed[one.name] = _encoded(one, features, weights)
            continue
        name = one.mask_of or one.name
        if name not in columns:
            raise DataError(f"no column {name}", hint="give null for an unknown value")
        try:
            fed[one.name] = _raw(one, columns[name])
        except (TypeError, ValueError, OverflowError) as error:
            raise DataError(f"column {name}: a value is no {one.dtype}: {error}") from error
    return fed


def _raw(one: Input, values: Sequence[Any]) -> Array:
    """Return raw values with the declared value for null, or the mask of a list."""
    dtype = _DTYPES[one.dtype]
    if one.mask_of is not None:
        return _rectangle([[True] * len(row or ()) for row in values], dtype, fill=False)
    if len(one.shape) == 1:
        return np.array([one.null if value is None else value for value in values], dtype=dtype)
    rows = [[one.null if value is None else value for value in row or ()] for row in values]
    return _rectangle(rows, dtype, fill=one.null)


def _rectangle(rows: list[list[Any]], dtype: Any, *, fill: Any) -> Array:
    padded = np.full((len(rows), max(1, *map(len, rows), 1)), fill, dtype=dtype)
    for row, values in enumerate(rows):
        padded[row, : len(values)] = values
    return padded


def _encoded(one: Input, features: Mapping[str, Feature], lists: Mapping[str, Ragged]) -> Array:
    assert one.of is not None
    feature = features.get(row_column(one.of), features.get(one.of))
    if feature is None:  # weights belong to their list
        feature = next(
            Ragged(feature.weights, feature.offsets)
            for name, feature in lists.items()
            if feature.weights is not None and one.shape[1] == length_of(name)
        )
    if isinstance(feature, Ragged):
        longest = int(feature.offsets.diff().max()) if feature.offsets.numel() > 1 else 1
        feature = feature.padded(max(1, longest))[0]
    return feature.numpy().astype(_DTYPES[one.dtype])
