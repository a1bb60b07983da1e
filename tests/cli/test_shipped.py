"""Included configs are found by their documented name in any directory."""

from __future__ import annotations

from pathlib import Path

from recsys_cli.cli import shipped
from tests.cli.conftest import Recsys


def test_shipped_config_is_found_from_any_directory(recsys: Recsys) -> None:
    answer = recsys("validate", "configs/ml25m.yaml")

    assert (answer.code, "ml25m.yaml is valid" in answer.out) == (0, True)


def test_own_config_comes_before_the_shipped_one(recsys: Recsys) -> None:
    own = Path("configs/ml25m.yaml")
    own.parent.mkdir()
    own.write_text("dataset: {name: movielens-52m}\n")

    answer = recsys("validate", "configs/ml25m.yaml")

    assert answer.code == 2
    assert "movielens-52m" in answer.err
    assert shipped.configs() == [own]


def test_unknown_config_is_missing(recsys: Recsys) -> None:
    answer = recsys("validate", "configs/ml26m.yaml")

    assert answer.code == 2
    assert "no config file configs/ml26m.yaml" in answer.err
