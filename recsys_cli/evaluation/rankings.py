"""Rankings of each user and scores of each row: the file format behind `recsys compare`, the report and `inspect`.

Two runs are compared, and recommendations shown, without scoring again. The module does not import torch.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from recsys_cli.errors import DataError
from recsys_cli.features.schema import Task
from recsys_cli.workspace import replacing

VERSION = 2
_ITEMS, _HITS = "items/", "hits/"
_OPTIONAL = ("row_impressions", "owners")
_META = "recsys"


@dataclass(frozen=True)
class Rankings:
    """The rankings of S systems for U users, and the model's scores of the N rows of the split.

    Attributes:
        k: Cut-offs, ascending; the largest is P.
        problem: Fingerprint of the ranking problem in raw values: users, ground truth, seen items, candidates,
            cut-offs. Equal fingerprints allow paired tests, even between differently prepared data.
        rows: Fingerprint of the rows with labels, in file order and raw values: if equal, row i is the same row.
        users: Encoded users, ascending; shape (U,). Empty without rankings. Cold-start users share the id 2 (unseen)
            and differ by hash.
        user_hashes: Hash of each user's raw value, equal in every prepared data; shape (U,), uint64.
        items: By system, the model first: encoded items, best first, padded with 0; shape (U, P).
        hits: By system: whether the item at a rank is in the ground truth; shape (U, P).
        sampled: Encoded sampled candidates of each user, padded with 0; shape (U, C), with C = 0 in a full ranking.
        logits: The model's score of each row, in file order; shape (N,).
        task: Task of the label: scores are logits of binary labels, or predictions of numeric labels.
        row_clusters: Cluster of each row: rows of one user share a number, and a row without a user is its own cluster;
            shape (N,).
        row_impressions: Number of each row's impression, -1 without one; shape (N,). None without impressions.
        owners: User number of each ranking, if users have several; shape (U,). None for one ranking per user.
    """

    split: str
    k: tuple[int, ...]
    protocol: dict[str, str]
    problem: str
    rows: str
    users: npt.NDArray[np.int64]
    user_hashes: npt.NDArray[np.uint64]
    num_relevant: npt.NDArray[np.int64]
    items: dict[str, npt.NDArray[np.int32]]
    hits: dict[str, npt.NDArray[np.bool_]]
    sampled: npt.NDArray[np.int32]
    logits: npt.NDArray[np.float32]
    labels: npt.NDArray[np.uint8] | npt.NDArray[np.float32]
    row_users: npt.NDArray[np.int32]
    row_items: npt.NDArray[np.int32]
    row_clusters: npt.NDArray[np.int32]
    task: Task = "binary"
    row_impressions: npt.NDArray[np.int32] | None = None
    owners: npt.NDArray[np.int64] | None = None

    @property
    def systems(self) -> tuple[str, ...]:
        """The model first, then the baselines."""
        return tuple(self.items)

    def save(self, path: Path) -> None:
        """Write one safetensors file atomically."""
        meta = {"version": VERSION, "systems": self.systems}
        meta |= {name: getattr(self, name) for name in ("split", "k", "protocol", "problem", "rows", "task")}
        tensors: dict[str, npt.NDArray[Any]] = {name: getattr(self, field) for field, name in _TENSORS.items()}
        tensors |= {_ITEMS + system: items for system, items in self.items.items()}
        tensors |= {_HITS + system: hits.astype(np.uint8) for system, hits in self.hits.items()}
        optional = {name: getattr(self, name) for name in _OPTIONAL}
        tensors |= {name: tensor for name, tensor in optional.items() if tensor is not None}
        contiguous = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
        with replacing(path) as partial:
            save_file(contiguous, partial, metadata={_META: json.dumps(meta)})

    @classmethod
    def read(cls, path: Path) -> Rankings:
        """Read a file written by `save`.

        Raises:
            DataError: The file is missing, damaged, or of another version.
        """
        try:
            with safe_open(path, framework="np") as file:
                meta, names = json.loads((file.metadata() or {})[_META]), set(file.keys())
                if meta["version"] != VERSION:
                    raise ValueError(f"version {meta['version']}, expected {VERSION}")
                return cls(
                    split=meta["split"],
                    k=tuple(meta["k"]),
                    protocol=meta["protocol"],
                    problem=meta["problem"],
                    rows=meta["rows"],
                    task=meta.get("task", "binary"),
                    items={system: file.get_tensor(_ITEMS + system) for system in meta["systems"]},
                    hits={system: file.get_tensor(_HITS + system) != 0 for system in meta["systems"]},
                    **{field: file.get_tensor(name) for field, name in _TENSORS.items()},
                    **{name: file.get_tensor(name) for name in _OPTIONAL if name in names},
                )
        except (OSError, SafetensorError, KeyError, ValueError) as error:
            raise DataError(f"{path}: cannot read rankings: {error}", hint="recsys evaluate --force") from error


_SAME_NAME = ("users", "user_hashes", "num_relevant", "logits", "labels", "row_users", "row_items", "row_clusters")
_TENSORS = dict(zip(_SAME_NAME, _SAME_NAME, strict=True)) | {"sampled": "drawn"}
"""Names of the tensors in the file, by attribute."""
