"""Baselines of every evaluation: pointwise ones are defined here, ranking ones are models of the registry, fitted once."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from recsys_cli import __version__
from recsys_cli.config import EvaluateConfig
from recsys_cli.config.load import model_config_type
from recsys_cli.errors import RecsysError
from recsys_cli.features.schema import Role, Schema
from recsys_cli.interactions import Interactions
from recsys_cli.models import build
from recsys_cli.models.configs.matrix import OWN_FIRST, affordable_ease
from recsys_cli.models.model import Model, TrainingContext
from recsys_cli.models.weights import checksum_of_tensors
from recsys_cli.workspace import key_of
from recsys_cli.workspace.files import replacing


def log_odds(probability: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return logits of probabilities, clipped to finite values."""
    clipped = np.clip(probability, 1e-6, 1 - 1e-6)
    return np.log(clipped / (1 - clipped))


@dataclass(frozen=True)
class ConstantBaseline:
    """Predicts the mean label of train for every row."""

    mean: float

    @classmethod
    def fit(cls, train: Interactions, *, num_items: int) -> ConstantBaseline:
        """Average the labels; 0.5 without rows."""
        del num_items
        return cls(float(train.labels.mean(dtype=np.float64)) if len(train) else 0.5)

    def numbers(self, rows: Interactions) -> npt.NDArray[np.float64]:
        """Return the mean for every row."""
        return np.full(len(rows), self.mean)


SMOOTHING = 5.0
"""Pseudo-rows with the overall mean, added to every item."""


@dataclass(frozen=True)
class ItemMean:
    """Predicts an item's mean label in train, shrunk towards the overall mean.

    Attributes:
        means: Mean by item id, shape (num_items,).
    """

    means: npt.NDArray[np.float64]

    @classmethod
    def fit(cls, train: Interactions, *, num_items: int) -> ItemMean:
        """Average the labels of each item."""
        overall = ConstantBaseline.fit(train, num_items=num_items).mean
        rows = np.bincount(train.item_idx, minlength=num_items)
        positive = np.bincount(train.item_idx, weights=train.labels, minlength=num_items)
        return cls((positive + SMOOTHING * overall) / (rows + SMOOTHING))

    def numbers(self, rows: Interactions) -> npt.NDArray[np.float64]:
        """Return the mean of each row's item."""
        return self.means[rows.item_idx]


# RMSE on a held-out tenth of the train rows of MovieLens latest-small: 0.872; with 5: 0.875; with 10: 0.883.
BIAS_SMOOTHING = 2.0
"""Pseudo-rows with residual zero, added to every user and item."""
ROUNDS = 10
"""Rounds of alternating least squares."""


@dataclass(frozen=True)
class UserItemMean:
    """Predicts mean + user bias + item bias: the baseline of Koren (TKDD 2010, section 2.1).

    Attributes:
        users: User biases by id, shape (U,). Ids from U on have no bias.
        items: Item biases by id, shape (num_items,).
    """

    mean: float
    users: npt.NDArray[np.float64]
    items: npt.NDArray[np.float64]

    @classmethod
    def fit(cls, train: Interactions, *, num_items: int) -> UserItemMean:
        """Fit the biases by alternating least squares, each shrunk towards 0."""
        mean = float(train.labels.mean(dtype=np.float64)) if len(train) else 0.0
        residuals = train.labels.astype(np.float64) - mean
        users, items = np.zeros(int(train.user_idx.max(initial=0)) + 1), np.zeros(num_items)
        for _ in range(ROUNDS):
            items = _bias(residuals - users[train.user_idx], train.item_idx, num_items)
            users = _bias(residuals - items[train.item_idx], train.user_idx, len(users))
        return cls(mean, users, items)

    def numbers(self, rows: Interactions) -> npt.NDArray[np.float64]:
        """Return the predicted label of each row."""
        has_bias = rows.user_idx < len(self.users)
        of_user = np.where(has_bias, self.users[np.where(has_bias, rows.user_idx, 0)], 0.0)
        return self.mean + of_user + self.items[rows.item_idx]


def _bias(values: npt.NDArray[np.float64], ids: npt.NDArray[np.int32], size: int) -> npt.NDArray[np.float64]:
    return np.bincount(ids, weights=values, minlength=size) / (np.bincount(ids, minlength=size) + BIAS_SMOOTHING)


_CHECKSUM = "checksum"


class FittedCache:
    """Weights of models fitted on the train rows of prepared data, in its folder; one without write access caches nothing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, name: str, options: dict[str, Any]) -> Path:
        """Return the file of a model: its key has package version, model format and options."""
        version = getattr(model_config_type(name), "format", 1)
        key = key_of("fitted", __version__, name, version, options)
        return self.folder / f"{name}-{key[:16]}.safetensors"

    def load(self, model: Model, path: Path) -> bool:
        """Load a file into a model; return False if it is missing or damaged."""
        try:
            with safe_open(path, framework="pt") as file:
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
                checksum = (file.metadata() or {}).get(_CHECKSUM)
        except (OSError, SafetensorError):
            return False
        if checksum != checksum_of_tensors(tensors):
            return False
        try:
            model.load_state_dict(tensors)
        except RuntimeError:  # tensors of another shape
            return False
        return True

    def save(self, model: Model, path: Path) -> None:
        """Write a model's weights atomically."""
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
        with (
            suppress(OSError, RecsysError),  # the cache is optional: a full disk is reported when results are written
            replacing(path) as partial,
        ):
            save_file(tensors, partial, metadata={_CHECKSUM: checksum_of_tensors(tensors)})


WORTH_KEEPING = 0.2
"""Minimum fitting time in seconds for the cache: popularity is counted faster than read."""


def ranking_baselines(schema: Schema, config: EvaluateConfig, num_rows: int) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return the registry name and the options of each baseline by label, in table order, for some rows of train."""
    own_first = {OWN_FIRST: ("popularity", {"own_first": True})} if config.repeats else {}
    users, items = (len(schema.only(role).own_ids) for role in (Role.USER, Role.ITEM))
    ease = {"ease": ("ease", affordable_ease(users, items, num_rows))}
    return {"popularity": ("popularity", {}), **own_first, **ease}


def fit_baseline(
    name: str,
    options: dict[str, Any],
    schema: Schema,
    train: TrainingContext,
    history: TrainingContext,
    *,
    device: torch.device | str,
    cache: FittedCache | None = None,
) -> Model:
    """Return a model fitted on train, with the context of the ranking; None as cache always fits."""
    model = build(name, options, schema).to(device)
    with torch.no_grad():
        _fit(model.eval(), name, options, train, cache)
        model.set_context(history)
    return model


def _fit(model: Model, name: str, options: dict[str, Any], train: TrainingContext, cache: FittedCache | None) -> None:
    file = cache.path(name, options) if cache is not None else None
    if cache is not None and file is not None and cache.load(model, file):
        return
    started = time.perf_counter()
    model.fit(train)
    if cache is not None and file is not None and time.perf_counter() - started >= WORTH_KEEPING:
        cache.save(model, file)


POINTWISE: dict[str, type[ItemMean | ConstantBaseline]] = {"item mean": ItemMean, "constant": ConstantBaseline}
"""Baselines for binary labels by name, in table order."""

OF_NUMBERS: dict[str, type[UserItemMean | ConstantBaseline]] = {
    "user and item mean": UserItemMean,
    "constant": ConstantBaseline,
}
"""Baselines for numeric labels by name, in table order."""
