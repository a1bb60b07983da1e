"""Print the growth of this process in MiB while EASE is fitted and saved: `python -m tests.unit.models.ease_memory MIB PENALTY`."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from recsys_cli.models import build
from recsys_cli.models.model import TrainingContext
from recsys_cli.training.checkpoint import Checkpoint, weights
from tests.unit.models.matrix_fixtures import context_of, rows_of_matrix, schema_of, some_matrix

NUM_USERS, NUM_ITEMS = 8_000, 7_000


def mebibytes(key: str) -> float:
    """Return a figure of this process, such as VmRSS."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split(f"{key}:")[1].split()[0]) / 1024


def sparse_matrix() -> np.ndarray:
    """Twenty random items of each user."""
    matrix = np.zeros((NUM_USERS, NUM_ITEMS), np.bool_)
    items = np.random.default_rng(0).integers(NUM_ITEMS, size=(NUM_USERS, 20))
    matrix[np.arange(NUM_USERS)[:, None], items] = True
    return matrix


def fit(matrix: np.ndarray, context: TrainingContext, memory_mib: int, penalty: float | None) -> int:
    """Fit and save EASE, and return its number of items."""
    model = build("ease", {"memory_mib": memory_mib, "regularization": penalty}, schema_of(matrix))
    with torch.no_grad(), TemporaryDirectory() as folder:
        model.fit(context)
        model.set_context(context)
        Checkpoint(weights(model), {}).save(Path(folder) / "best")
    return int(model.num_items)  # type: ignore[arg-type]


if __name__ == "__main__":
    small, large = some_matrix(300, 200), sparse_matrix()
    rows = rows_of_matrix(large)
    fit(small, context_of(small), 1, None)  # libraries and threads
    before = mebibytes("VmRSS")
    options = int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else None
    items = fit(large, TrainingContext(lambda: rows, dict), *options)
    sys.stdout.write(f"{items} {mebibytes('VmHWM') - before}")
