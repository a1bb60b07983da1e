"""A fitted baseline is read again, and never from a damaged file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from recsys_cli.evaluation import baselines
from recsys_cli.evaluation.baselines import FittedCache, fit_baseline
from recsys_cli.interactions import Interactions
from recsys_cli.models.matrix.ease import EASE
from recsys_cli.models.model import Model, TrainingContext
from tests.pairs import schema_of_pairs

USERS, ITEMS = torch.arange(3, 13), torch.arange(3, 11)
SCHEMA = schema_of_pairs(13, 11)


def rows(seed: int) -> Interactions:
    random = np.random.default_rng(seed)
    pairs = np.unique(random.integers([3, 3], [13, 11], (60, 2)), axis=0).astype(np.int32)
    return Interactions(pairs[:, 0], pairs[:, 1], np.ones(len(pairs), np.float32))


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of rows of each real fit, all of them worth keeping."""
    seen: list[int] = []
    real = EASE.fit

    def fit(self: EASE, known: TrainingContext, **options: object) -> None:
        seen.append(len(known.interactions()))
        real(self, known, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(EASE, "fit", fit)
    monkeypatch.setattr(baselines, "WORTH_KEEPING", 0.0)
    return seen


def ease(known: Interactions, folder: Path) -> torch.Tensor:
    train = TrainingContext(lambda: known, dict)
    model: Model = fit_baseline(
        "ease", {"max_items": None}, SCHEMA, train, train, device="cpu", cache=FittedCache(folder)
    )
    return model.scores(USERS, ITEMS)  # type: ignore[attr-defined, no-any-return]


def test_the_second_time_it_is_read_unless_the_folder_cannot_be_written(fits: list[int], tmp_path: Path) -> None:
    first, second = ease(rows(1), tmp_path), ease(rows(1), tmp_path)
    assert len(fits) == 1
    assert torch.equal(first, second)
    file = tmp_path / "file"
    file.write_text("no folder")
    assert torch.equal(ease(rows(1), file), ease(rows(1), file))
    assert len(fits) == 3


@pytest.mark.parametrize("damage", ["flip", "cut", "empty"])
def test_a_damaged_file_is_fitted_anew(damage: str, fits: list[int], tmp_path: Path) -> None:
    first = ease(rows(1), tmp_path)
    (file,) = tmp_path.glob("*.safetensors")
    content = bytearray(file.read_bytes())
    if damage == "flip":
        content[-20] ^= 64
    file.write_bytes({"flip": content, "cut": content[:-8], "empty": b""}[damage])
    assert torch.equal(ease(rows(1), tmp_path), first)
    assert torch.equal(ease(rows(1), tmp_path), first)
    assert len(fits) == 2
