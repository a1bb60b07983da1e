"""Every included config is valid and starts with its commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from recsys_cli.config import load
from recsys_cli.config.load import model_config_type
from recsys_cli.data import open_source
from recsys_cli.registry import MODELS

FOLDER = Path(__file__).resolve().parents[3] / "configs"
CONFIGS = sorted(FOLDER.rglob("*.yaml"))


def test_all_configs_are_found() -> None:
    names = {path.stem for path in CONFIGS}
    assert names >= {"ml25m", "ml25m-temporal", "ml25m-notebook", "ml-latest-small", "ml100k", "ml1m", "ml32m"}
    assert names >= {"demo", "demo-labels"}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_config_is_valid_and_starts_with_its_commands(path: Path) -> None:
    config = load(path)
    name = path.relative_to(FOLDER.parent)
    head = "".join(line for line in path.read_text().splitlines(keepends=True) if line.startswith("#"))
    is_own = open_source(config.dataset.name, config.dataset.options).info.is_own
    downloads = (
        f"recsys download {config.dataset.name}\n",
        f"recsys download {config.dataset.name} --from-file ",
        f"recsys download {name}",
    )
    assert is_own or any(command in head for command in downloads)
    then = ("recsys bench",) if config.bench is not None else ("recsys train", "recsys evaluate")
    for command in (f"recsys etl {name}\n", *then):
        assert command in head
    assert path.read_text().startswith("# ")


def test_the_bench_has_every_model() -> None:
    bench = load(FOLDER / "bench-ml-latest-small.yaml").bench
    assert bench is not None
    assert set(MODELS) ^ set(bench.labels) == set(), "bench.models of bench-ml-latest-small.yaml has each model once"
    assert len(bench.labels) == len(MODELS)


def test_ml25m_is_the_recipe_of_the_notebooks() -> None:
    config = load(FOLDER / "ml25m-notebook.yaml")
    assert config.dataset.name == "movielens-25m"
    assert config.split.model_dump() == {"method": "random", "valid": 0.2, "test": 0.0, "seed": 42}
    assert config.features.categorified == ("userId", "movieId", "genres")
    assert [text for op in config.features.ops for text in op.expressions.values()] == ["rating > 3"]
    assert [(op.table, op.on, op.columns) for op in config.features.joins] == [("movies", "movieId", ("genres",))]
    recipe = {"embedding_dim": None, "hidden_dims": [128, 128, 128], "dropout": 0.0, "embedding_dropout": 0.0}
    assert config.model.options == model_config_type("mlp")(**recipe).model_dump(mode="json")
    assert (config.train.epochs, config.train.batch_size, config.train.learning_rate) == (1, 32_768, 0.01)


def test_the_temporal_twin_differs_only_in_its_split() -> None:
    twin, plain = load(FOLDER / "ml25m-temporal.yaml"), load(FOLDER / "ml25m.yaml")
    assert twin.split.model_dump() == {"method": "temporal", "valid": 0.1, "test": 0.1}
    assert twin.model_copy(update={"split": plain.split}) == plain


def test_another_model_drops_the_search_space_of_the_first() -> None:
    demo = FOLDER / "demo-labels.yaml"
    changed = load(demo, ["model.name=ease"])
    assert changed.model.name == "ease"
    assert changed.tune is not None
    assert set(changed.tune.space) == {"train.learning_rate"}
    assert set(load(demo, ["model.name=mlp"]).tune.space) > {"train.learning_rate"}  # type: ignore[union-attr]
