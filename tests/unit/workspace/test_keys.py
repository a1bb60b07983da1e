"""Every field of a config belongs to the key of one stage or to none; a field without a place here fails a test."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, cast, get_args

import pytest
from pydantic import BaseModel

from recsys_cli.config import RunConfig
from recsys_cli.data import open_source
from recsys_cli.features.split import splits
from recsys_cli.metrics import RANKING
from recsys_cli.stages.etl import data_key
from recsys_cli.stages.evaluate import evaluation_key
from recsys_cli.stages.run_selection import run_key
from recsys_cli.stages.tune import study_key
from recsys_cli.workspace import PreparedData, Workspace, key_of

Stage = Literal["data", "run", "evaluation", "study", "none"]
"""The first stage with a new key."""

BASE: dict[str, Any] = {
    "dataset": {"name": "files", "interactions": "one.csv"},
    "split": {"method": "random"},
    "features": {
        "user": "user",
        "item": "item",
        "label": "label",
        "ops": [{"op": "Categorify", "columns": ["user", "item", "tags"]}],
    },
    "model": {"name": "mlp"},
    "tune": {"space": {"train.learning_rate": {"low": 0.001, "high": 0.1}}},
    "bench": {"models": ["mlp"]},
    "protocol": {"paper": "a", "published": [{"model": "m", "source": "s", "figures": {"auc": 0.6}}]},
}
TAGS = {"op": "Categorify", "columns": ["user", "item"]}

FIELDS: dict[str, tuple[Any, Stage]] = {
    "dataset.name": (None, "data"),  # has tests of its own
    "dataset.interactions": ("two.csv", "data"),
    "features.user": ("tags", "data"),
    "features.item": ("tags", "data"),
    "features.label": ("stars", "data"),
    "features.weight": ("stars", "data"),
    "features.list_weights": ({"tags": "weights"}, "data"),
    "features.timestamp": ("time", "data"),
    "features.impression": ("tags", "data"),
    "features.ops": ([TAGS], "data"),
    "features.drop": (["stars"], "data"),
    "features.known": (["tags"], "data"),
    "etl.engine": ("polars", "none"),
    "etl.device": ("gpu", "none"),
    "etl.memory_mib": (512, "none"),
    "etl.cluster": ("local", "none"),
    "etl.workers": (2, "none"),
    "etl.layout": ("flat", "data"),
    "etl.on_bad_rows": ("skip", "data"),
    "etl.shard_rows": (10, "data"),
    "etl.seed": (1, "data"),
    "model.name": ("fm", "run"),
    "model.dropout": (0.31, "run"),
    "model.embedding.placement": ("host", "none"),
    "train.continue_from": ("a-run", "run"),
    "train.epochs": (3, "run"),
    "train.batch_size": (77, "run"),
    "train.seed": (1, "run"),
    "train.sparse_embeddings": (True, "run"),
    "train.embedding_optimizer": ("sgd", "run"),
    "train.learning_rate": (0.5, "run"),
    "train.embedding_learning_rate": (0.5, "run"),
    "train.weight_decay": (0.5, "run"),
    "train.embedding_weight_decay": (0.5, "run"),
    "train.scale_learning_rate": ("sqrt", "run"),
    "train.reference_batch_size": (5, "run"),
    "train.schedule": ({"name": "constant", "warmup_steps": 7}, "run"),
    "train.max_grad_norm": (1.0, "run"),
    "train.gradient_accumulation_steps": (2, "run"),
    "train.positive_weight": (2.0, "run"),
    "train.label_smoothing": (0.1, "run"),
    "train.ema_decay": (0.9, "run"),
    "train.precision": ("bf16", "run"),
    "train.tf32": (True, "run"),
    "train.compile": (True, "run"),
    "train.monitor": ("loss", "run"),
    "train.early_stopping": (7, "run"),
    "train.checkpoint_steps": (5, "none"),
    "train.trackers": ([], "none"),
    "train.device": ("cpu", "none"),
    "train.devices": (2, "none"),
    "train.memory_mib": (512, "run"),
    "evaluate.split": ("valid", "evaluation"),
    "evaluate.k": ([5, 10], "evaluation"),
    "evaluate.metrics": (["theirs"], "evaluation"),
    "evaluate.max_ranking_users": (3, "evaluation"),
    "evaluate.relevance": ("all", "evaluation"),
    "evaluate.candidates": ("sampled-uniform", "evaluation"),
    "evaluate.repeats": (True, "run"),
    "recommend.cold_slots": (1, "run"),
    "evaluate.sampled_items": (7, "evaluation"),
    "evaluate.targets": ("last", "evaluation"),
    "evaluate.fold_in_targets": ("each", "evaluation"),
    "evaluate.bootstrap": (11, "evaluation"),
    "evaluate.seed": (1, "evaluation"),
    "evaluate.title": ("name", "evaluation"),
    "evaluate.batch_size": (5, "none"),
    "train.recent": ({"after": 1.0}, "run"),
    "update.held_out": (0.3, "none"),
    "update.tolerance": (0.2, "none"),
    "update.epochs": (3, "none"),
    "update.history": (1.0, "none"),
    "update.full_every": (3, "none"),
    "update.keep": (9, "none"),
    "tune.space": ({"train.learning_rate": {"low": 0.002, "high": 0.1}}, "study"),
    "tune.trials": (3, "none"),
    "tune.minutes": (3, "none"),
    "tune.seed": (1, "study"),
    "tune.pruning": ("none", "study"),
    "tune.pruning_trials": (1, "study"),
    "tune.pruning_epochs": (3, "study"),
    "bench.models": (["fm"], "none"),
    "bench.seeds": ([1], "none"),
    "bench.metrics": (["auc"], "none"),
    "protocol.paper": ("b", "none"),
    "protocol.rows": ({"test": 1}, "none"),
    "protocol.notes": (["c"], "none"),
    "protocol.variants": (["ties"], "none"),
    "protocol.published": ([{"model": "d", "source": "e", "figures": {"auc": 0.5}}], "none"),
}
"""Field → another value and the first changed key; fields of splits follow below."""

SPLITS: dict[str, dict[str, Any]] = {
    "random": {"valid": 0.3, "test": 0.3, "seed": 1, "tie_seed": 1},
    "temporal": {"valid": 0.3, "test": 0.3, "tie_seed": 1},
    "leave-last-out": {"tie_seed": 1},
    "user": {"valid": 0.3, "test": 0.3, "seed": 1, "tie_seed": 1},
    "session": {"valid": 0.3, "test": 0.3, "tie_seed": 1},
    "files": {"train": "two.csv", "valid": "two.csv", "test": "two.csv", "tie_seed": 1},
}
"""Method → another value of each field; all of them change the data key."""

OPEN_SECTIONS = {"dataset.interactions", "model.dropout"}
"""One option of a dataset and one of a model as examples; options are not fields of their sections."""
ORDER: tuple[Stage, ...] = ("data", "run", "evaluation", "study")


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A workspace and two tables."""
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        Path(f"{name}.csv").write_text(f"user,item,label,tags,stars,time,weights\n{name},1,1,1,1,1,1\n")
    return Workspace(tmp_path / "workspace")


def keys(config: dict[str, Any], workspace: Workspace) -> dict[Stage, str]:
    """Return the keys of all stages, each based on the key of the stage before."""
    whole = RunConfig.model_validate(config)
    data = cast("PreparedData", SimpleNamespace(key=data_key(whole, workspace), rows=lambda _: 1))
    run = run_key(whole, data)
    study = study_key(whole, data)
    return {"data": data.key, "run": run, "evaluation": evaluation_key(run, whole.evaluate), "study": study}


DENSE_ONLY = ("train.sparse_embeddings", "train.embedding_weight_decay")
"""Fields that are tried without sparse updates; those of `train` and of placement are tried with them, as some need them."""


def with_value(field: str, value: Any) -> dict[str, Any]:
    config = base_of(field)
    *path, last = field.split(".")
    section = config
    for name in path:
        section = section.setdefault(name, {})
    section[last] = value
    return config


def base_of(field: str) -> dict[str, Any]:
    config: dict[str, Any] = json.loads(json.dumps(BASE))
    if field == "features.impression":
        config["split"]["method"] = "user"  # a random one divides impressions
    if field.startswith(("train.", "model.embedding")):
        config["train"] = {"sparse_embeddings": field not in DENSE_ONLY}
    return config


def fields_of(section: type[BaseModel], name: str) -> Iterator[str]:
    """List the fields of a section and its subsections; a section with variants or without fields counts as a field."""
    for field, info in section.model_fields.items():
        inside = info.annotation
        is_section = isinstance(inside, type) and issubclass(inside, BaseModel)
        yield from fields_of(inside, f"{name}{field}.") if is_section else [f"{name}{field}"]


def sections() -> Iterator[str]:
    for name, info in RunConfig.model_fields.items():
        kinds = [kind for kind in (info.annotation, *get_args(info.annotation)) if isinstance(kind, type)]
        section = next((kind for kind in kinds if issubclass(kind, BaseModel)), None)
        if name != "split" and section is not None:
            yield from fields_of(section, f"{name}.")


def test_every_field_has_a_place_here() -> None:
    assert set(FIELDS) - OPEN_SECTIONS == set(sections())
    methods = {method: set(kind.model_fields) - {"method"} for method, kind in splits().items()}
    assert {method: set(values) for method, values in SPLITS.items()} == methods


@pytest.mark.parametrize("field", [field for field in FIELDS if field != "dataset.name"])
def test_field_changes_the_expected_keys(field: str, workspace: Workspace) -> None:
    value, first = FIELDS[field]
    before, after = keys(base_of(field), workspace), keys(with_value(field, value), workspace)
    changed = {stage for stage in ORDER if before[stage] != after[stage]}
    expected: dict[Stage, set[Stage]] = {
        "data": {"data", "run", "evaluation", "study"},
        "run": {"run", "evaluation", "study"},
        "evaluation": {"evaluation"},
        "study": {"study"},
        "none": set(),
    }
    assert changed == expected[first]


def test_new_metric_is_another_evaluation(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    before = keys(BASE, workspace)
    monkeypatch.setitem(RANKING, "new", RANKING["hr"])
    after = keys(BASE, workspace)
    assert [stage for stage in ORDER if before[stage] != after[stage]] == ["evaluation"]


def test_another_dataset_is_other_data(workspace: Workspace) -> None:
    found = {keys(BASE, workspace)["data"]}
    for name in ("synthetic-small", "movielens-100k"):
        raw = workspace.raw(name)
        raw.folder.mkdir(parents=True)
        manifest = {"key": key_of(open_source(name, {}).identity())}
        (raw.folder / "manifest.json").write_text(json.dumps(manifest))
        found.add(keys({**BASE, "dataset": {"name": name}}, workspace)["data"])
    assert len(found) == 3


@pytest.mark.parametrize(
    ("method", "field"), [(method, field) for method, fields in SPLITS.items() for field in fields]
)
def test_each_field_of_a_split_changes_the_data(method: str, field: str, workspace: Workspace) -> None:
    split = {"method": method} | ({"train": "one.csv"} if method == "files" else {})
    features = {**BASE["features"], "timestamp": "time"}
    before, after = (
        keys({**BASE, "features": features, "split": one}, workspace)
        for one in (split, {**split, field: SPLITS[method][field]})
    )
    assert not {stage for stage in ORDER if before[stage] == after[stage]}


def test_each_method_of_a_split_is_other_data(workspace: Workspace) -> None:
    features = {**BASE["features"], "timestamp": "time"}
    splits = [{"method": method} | ({"train": "one.csv"} if method == "files" else {}) for method in SPLITS]
    found = {keys({**BASE, "features": features, "split": split}, workspace)["data"] for split in splits}
    assert len(found) == len(SPLITS)


def test_changed_content_of_a_table_is_other_data(workspace: Workspace) -> None:
    before = keys(BASE, workspace)
    with Path("one.csv").open("a") as file:
        file.write("three,1,1,1,1,1,1\n")
    assert keys(BASE, workspace)["data"] != before["data"]
