"""Check of an exported program against the model, at batch sizes with known defects of exporters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from recsys_cli.batch import Batch, Ragged
from recsys_cli.errors import DataError
from recsys_cli.serving.export.program import Score

BATCH_SIZES = (1, 2, 257)
TOLERANCE = 1e-5
"""Maximum difference of scores, relative to scores beyond 1."""

Run = Callable[[dict[str, Any]], npt.NDArray[np.float32]]


def plain_inputs(batch: Batch, rows: Mapping[str, torch.Tensor], names: list[str], weights: Mapping[str, str]) -> dict[str, torch.Tensor]:
    """Return the inputs of a program for a batch.

    Args:
        batch: Encoded rows.
        rows: Table rows of the keys.
        names: Input names.
        weights: List column of each column of weights.
    """
    inputs = {}
    for name in names:
        if name in rows:
            inputs[name] = rows[name].long()
        elif name in weights:
            one = batch.features[weights[name]]
            assert isinstance(one, Ragged)
            assert one.weights is not None
            inputs[name] = Ragged(one.weights, one.offsets).padded(_longest(one))[0]
        else:
            one = batch.features[name]
            if isinstance(one, Ragged):
                inputs[name] = one.padded(_longest(one))[0].long()
            else:
                inputs[name] = one.float() if one.is_floating_point() else one.long()
    return inputs


def largest_difference(eager: torch.Tensor, exported: npt.NDArray[np.float32], *, what: str) -> float:
    """Return the largest difference of outputs, relative to outputs beyond 1.

    Raises:
        DataError: It exceeds the tolerance; the message names the first such row.
    """
    expected = eager.float().numpy()
    if expected.shape != exported.shape:
        raise DataError(f"{what}: the shape is {exported.shape} instead of {expected.shape}")
    differences = np.abs(expected - exported) / np.maximum(1, np.abs(expected))
    wrong = ~(differences <= TOLERANCE) & ~(np.isnan(expected) & np.isnan(exported))
    if wrong.any():
        place = tuple(int(index) for index in np.argwhere(wrong)[0])
        raise DataError(
            f"{what}: row {place[0] + 1} of a batch of {len(expected)} is {exported[place]}, and the model's is {expected[place]}",
            hint="use the bundle: recsys export RUN --format bundle",
        )
    return float(np.nanmax(differences, initial=0.0))


def eager_outputs(eager: Score, batch: Batch) -> torch.Tensor:
    """Return the outputs of the model."""
    with torch.inference_mode():
        return eager(batch)


def _longest(feature: Ragged) -> int:
    return max(1, int(feature.offsets.diff().max()))
