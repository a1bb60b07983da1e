"""Published datasets from their publishers' files to a trained model, by their shipped configs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Recsys
from tests.publishers import SAMPLES

SMALL = {
    "criteo-kaggle": ("features.ops.4.freq_threshold=1", "model.bottom_mlp=[8]", "model.top_mlp=[8]"),
    "criteo-1tb": ("features.ops.4.freq_threshold=1", "model.bottom_mlp=[8]", "model.top_mlp=[8]"),
}
"""Overrides of a config for a few rows."""


@pytest.mark.parametrize("name", SAMPLES)
def test_config_trains_from_the_publishers_files(name: str, recsys: Recsys, tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    config = f"configs/{name}.yaml"

    assert recsys("validate", config).code == 0
    fetched = recsys("--json", "download", config, "--from-file", SAMPLES[name](given))
    assert fetched.code == 0, fetched.err
    prepared = recsys("--json", "etl", config, *SMALL.get(name, ()))
    assert prepared.code == 0, prepared.err
    trained = recsys("--json", "train", config, *SMALL.get(name, ()), *_one_epoch(name))
    assert trained.code == 0, trained.err


def _one_epoch(name: str) -> tuple[str, ...]:
    return () if name == "hetrec-lastfm" else ("train.epochs=1", "train.batch_size=64")


@pytest.mark.parametrize(
    ("name", "size"),
    [("clicks", "rows=4_000"), ("sessions", "count=400"), ("impressions", "count=400")],
)
def test_synthetic_events_have_a_ceiling(name: str, size: str, recsys: Recsys) -> None:
    config, options = f"configs/synthetic-{name}.yaml", (f"dataset.{size.replace('_', '')}", "train.epochs=1")

    ran = recsys("--json", "run", config, *options, "evaluate.bootstrap=20", "evaluate.max_ranking_users=100")

    assert ran.code == 0, ran.err
    ceiling = ran.json["download"]["facts"]["ceiling"]
    if name == "sessions":
        assert 0.6 < ceiling["hr@10"] < 0.9
    else:
        assert ran.json["evaluate"]["ceiling"]["auc"] == pytest.approx(ceiling["auc"])
        assert 0.75 < ceiling["auc"] < 0.9
