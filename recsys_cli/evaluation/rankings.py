"""What an evaluation ranked and scored, user by user and row by row: the treaty with `recsys compare`, the report and `inspect`.

evaluation.json has the figures; this file has what they are figures of, so that two runs can be compared user by user, and
a user's recommendations shown, without asking the model again. It knows no torch.
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
_META = "recsys"


@dataclass(frozen=True)
class Rankings:
    """The rankings of S systems for U users, and the model's scores of the N rows of the split.

    Attributes:
        split: `valid` or `test`.
        k: The cut-offs, ascending; P is the largest.
        protocol: How it was measured, in words, as in evaluation.json.
        problem: Hash of what was asked of the rankings, in raw values: users, what they should find, what they have seen,
            candidates, cut-offs. Rankings of equal problems may be compared user by user, whatever data was prepared.
        rows: Hash of the rows in file order, in raw values and with their labels: where it is equal, row i is row i.
        users: Encoded users, ascending; shape (U,). No users where nothing was ranked; in a split by user nobody has an id of
            his own, so all are 2 (unseen), and their hashes tell them apart.
        user_hashes: Hash of each user's raw value: the same user has the same in every prepared data; shape (U,), uint64.
        num_relevant: How much there was to find, at least 1; shape (U,).
        items: By system, the model first: encoded items, best first, 0 where there is none; shape (U, P).
        hits: By system: whether that item should be found; shape (U, P).
        drawn: Encoded items that each user's ranking was sampled from, beside what should be found; shape (U, C), and C is
            0 where all candidates were ranked. A 0 in it is none.
        logits: The model's score of each row, in file order; shape (N,).
        labels: The main label of each row; shape (N,), uint8, or float32 where it is a number.
        task: What the label is: then scores are logits of labels of 0 and 1, or the numbers themselves.
        row_users: Encoded user of each row; shape (N,).
        row_items: Encoded item of each row; shape (N,).
        row_clusters: Rows of one user have the same number; a row whose user is not known has one of its own; shape (N,).
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
    drawn: npt.NDArray[np.int32]
    logits: npt.NDArray[np.float32]
    labels: npt.NDArray[np.uint8] | npt.NDArray[np.float32]
    row_users: npt.NDArray[np.int32]
    row_items: npt.NDArray[np.int32]
    row_clusters: npt.NDArray[np.int32]
    task: Task = "binary"

    @property
    def systems(self) -> tuple[str, ...]:
        """Who ranked: the model first, then the baselines."""
        return tuple(self.items)

    def save(self, path: Path) -> None:
        """Write one safetensors file: to a temporary name beside `path`, then renamed."""
        meta = {"version": VERSION, "systems": self.systems}
        meta |= {name: getattr(self, name) for name in ("split", "k", "protocol", "problem", "rows", "task")}
        tensors: dict[str, npt.NDArray[Any]] = {name: getattr(self, name) for name in _ARRAYS}
        tensors |= {_ITEMS + system: items for system, items in self.items.items()}
        tensors |= {_HITS + system: hits.astype(np.uint8) for system, hits in self.hits.items()}
        contiguous = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
        with replacing(path) as partial:
            save_file(contiguous, partial, metadata={_META: json.dumps(meta)})

    @classmethod
    def read(cls, path: Path) -> Rankings:
        """Read what `save` wrote.

        Raises:
            DataError: The file is missing, broken, or not of this version.
        """
        try:
            with safe_open(path, framework="np") as file:
                meta = json.loads((file.metadata() or {})[_META])
                if meta["version"] != VERSION:
                    raise ValueError(f"it is of version {meta['version']}, and this is {VERSION}")
                return cls(
                    split=meta["split"],
                    k=tuple(meta["k"]),
                    protocol=meta["protocol"],
                    problem=meta["problem"],
                    rows=meta["rows"],
                    task=meta.get("task", "binary"),
                    items={system: file.get_tensor(_ITEMS + system) for system in meta["systems"]},
                    hits={system: file.get_tensor(_HITS + system) != 0 for system in meta["systems"]},
                    **{name: file.get_tensor(name) for name in _ARRAYS},
                )
        except (OSError, SafetensorError, KeyError, ValueError) as error:
            raise DataError(
                f"{path}: not the rankings of an evaluation of this version: {error}", hint="recsys evaluate --force"
            ) from error


_ARRAYS = (
    "users",
    "user_hashes",
    "num_relevant",
    "drawn",
    "logits",
    "labels",
    "row_users",
    "row_items",
    "row_clusters",
)
