"""Inputs of keys: content of files without times, versions of ops and models, foreign code."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from recsys_cli.config import ModelConfig, RunConfig
from recsys_cli.errors import MissingArtifactError
from recsys_cli.events import Event, Message
from recsys_cli.models.configs.matrix import EASEConfig as Ease
from recsys_cli.models.configs.matrix import PopularityConfig as Popularity
from recsys_cli.models.configs.ranking import DINConfig as Din
from recsys_cli.models.configs.ranking import MLPConfig as Mlp
from recsys_cli.ops import Categorify
from recsys_cli.stages.etl import data_key, etl, prepared_data
from recsys_cli.stages.keys import code_of
from recsys_cli.stages.run_selection import run_key
from recsys_cli.workspace import write_json


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [f"{row % 7},{row % 5},{row % 2},{row}" for row in range(60)]
    for name in ("a", "b"):
        Path(f"{name}.csv").write_text("\n".join(["u,i,label,t", *lines]) + "\n")
    return RunConfig.model_validate({
        "dataset": {"name": "files", "interactions": "*.csv"},
        "features": {"user": "u", "item": "i", "label": "label", "timestamp": "t",
                     "ops": [{"op": "Categorify", "columns": ["u", "i"]}]},
        "model": {"name": "popularity"},
    })  # fmt: skip


def test_a_touched_file_leaves_the_data_up_to_date(config, workspace):
    made = etl(config, workspace)
    os.utime("a.csv", ns=(1, 1))
    assert etl(config, workspace).up_to_date
    assert prepared_data(config, workspace) == made.artifact


def test_a_changed_file_is_named(config, workspace):
    made = etl(config, workspace).artifact
    before = Path("b.csv").stat()
    Path("b.csv").write_text(Path("b.csv").read_text().replace("59\n", "58\n"))
    os.utime("b.csv", ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    with pytest.raises(MissingArtifactError) as caught:
        prepared_data(config, workspace)
    assert f": b.csv changed since {made.folder.name} was prepared" in caught.value.message
    assert "a.csv" not in caught.value.message


def test_another_format_of_an_op_or_a_model_makes_other_artifacts(config, workspace, monkeypatch):
    data = etl(config, workspace).artifact
    key, run = data_key(config, workspace), run_key(config, data)
    repeats = config.evaluate.model_copy(update={"repeats": True})
    assert run_key(config.model_copy(update={"evaluate": repeats}), data) != run
    monkeypatch.setattr(Popularity, "format", Popularity.format + 1)
    assert run_key(config, data) != run
    monkeypatch.setattr(Categorify, "format", 2)
    assert data_key(config, workspace) != key
    assert not etl(config, workspace).up_to_date


@pytest.mark.parametrize("part", [Popularity, Ease, Din])
def test_another_format_of_a_part_makes_another_stack(config, workspace, monkeypatch, part):
    """Ease is a part of a part."""
    inner = {"name": "two-stage", "candidates": [{"name": "ease"}], "ranker": None}
    options = {"candidates": [{"name": "popularity"}, inner], "ranker": {"name": "din"}}
    stack = config.model_copy(update={"model": ModelConfig(name="two-stage", **options)})
    data = etl(config, workspace).artifact
    run = run_key(stack, data)
    monkeypatch.setattr(Mlp, "format", 2, raising=False)
    assert run_key(stack, data) == run
    monkeypatch.setattr(part, "format", 99, raising=False)
    assert run_key(stack, data) != run


def test_the_memory_of_training_is_in_the_key(config, workspace):
    data = etl(config, workspace).artifact
    train = config.train.model_copy(update={"memory_mib": config.train.memory_mib + 1})
    assert run_key(config, data) != run_key(config.model_copy(update={"train": train}), data)


def test_what_another_version_made_is_said(config, workspace):
    data = etl(config, workspace).artifact
    manifest: dict[str, Any] = data.manifest
    write_json(data.folder / "manifest.json", {**manifest, "recsys": "0.0.1"})
    events: list[Event] = []
    assert etl(config, workspace, emit=events.append).up_to_date
    (said,) = [event.text for event in events if isinstance(event, Message)]
    assert "was made by recsys 0.0.1, and this is" in said
    assert "--force" in said


def test_code_from_elsewhere_is_in_the_key_and_is_not_run(tmp_path, monkeypatch):
    package = tmp_path / "theirs" / "model_a"
    package.mkdir(parents=True)
    (tmp_path / "theirs" / "__init__.py").write_text("raise SystemExit('it was run')")
    (package / "__init__.py").write_text("")
    (package / "model.py").write_text("A = 1")
    monkeypatch.syspath_prepend(tmp_path)
    before = code_of("theirs.model_a")
    assert before == code_of("theirs.model_a")
    (package / "model.py").write_text("A = 2")
    assert code_of("theirs.model_a") != before
    assert "theirs" not in sys.modules
    assert code_of("recsys_cli.models.ranking.networks:MLP") == []
    assert code_of("theirs.model_a.model:source") != code_of("theirs.nothing:source")
