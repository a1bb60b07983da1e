"""Check of an exported program against the model, at batch sizes with known defects of exporters."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from recsys_cli.batch import Batch
from recsys_cli.errors import DataError
from recsys_cli.serving.export.program import Score

BATCH_SIZES = (1, 2, 257)
TOLERANCE = 1e-5
"""Maximum difference of scores, relative to scores beyond 1."""


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
