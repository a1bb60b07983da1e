"""Every public function and method with hostile values in each parameter: a result, or an error that names what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import recsys_cli as recsys
from tests.api.frozen import python_names
from tests.api.test_python_docs import ratings

HOSTILE: tuple[Any, ...] = (
    None, True, 0, -1, 2**31, 10**30, float("nan"), float("inf"), 1j, print, int, object(),
    "", "\0", "a\nb", "..", "x" * 5_000, "\ud800", b"\xff", Path("\0"),
    [], [None], [[1]], ["x", 1], [10**30], [object()], (), {}, {1: 2}, {"x": object()}, {"\0": [1]}, {1, "a"},
    np.array(1), np.array([np.nan]), pa.table({"x": [None]}),
)  # fmt: skip
"""Values of a wrong type, out of range, or unfit for a path, a name, a number or a table."""


@dataclass(frozen=True)
class Call:
    """A public callable with arguments that work."""

    function: Callable[..., Any]
    arguments: dict[str, Any]


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Call]:
    """All public callables, by name; those with arguments, by name; on a run of popularity."""
    folder = tmp_path_factory.mktemp("hostile")
    workspace = recsys.Workspace(folder / "workspace")
    frame = ratings().head(300)
    columns = {"user": "userId", "item": "movieId", "rating": "rating", "timestamp": "timestamp"}
    config = recsys.config_from_frame(frame, workspace, **columns, model="popularity")
    data = recsys.etl(config, workspace, progress=False)
    run = recsys.train(config, workspace, progress=False)
    evaluation = recsys.evaluate(run, progress=False)
    again = recsys.train(recsys.load_config(config.model_dump(), ["train.seed=7"]), workspace, progress=False)
    recsys.evaluate(again, progress=False)
    comparison = recsys.compare([run, again])
    exported = recsys.export(run, folder / "bundle", progress=False)
    bundle = recsys.load_bundle(exported)
    user, item = frame["userId"][0], frame["movieId"][0]
    quiet = {"progress": False}
    return {
        "Comparison.called": Call(comparison.called, {"label": comparison.against}),
        "Comparison.to_frame": Call(comparison.to_frame, {"library": "arrow"}),
        "Evaluation.read": Call(recsys.Evaluation.read, {"path": run.evaluation}),
        "Evaluation.to_frame": Call(evaluation.to_frame, {"library": "arrow"}),
        "Events": Call(events, {"stage": recsys.etl, "config": config, "workspace": workspace}),
        "LoadedBundle.answer": Call(bundle.answer, {"queries": [recsys.Query(user)]}),
        "LoadedBundle.recommend": Call(
            bundle.recommend, {"users": [user], "k": 2, "histories": {user: [item]}, **filters(user, item)}
        ),
        "LoadedBundle.score": Call(bundle.score, {"rows": frame}),
        "LoadedBundle.search": Call(bundle.search, {"text": "1", "k": 2}),
        "LoadedBundle.similar": Call(bundle.similar, {"item": item, "k": 2}),
        "PreparedData.loader": Call(
            loader(data), {"split": "train", "batch_size": 8, "shuffle": True, "seed": 1, "device": "cpu"}
        ),
        "PreparedData.tf_dataset": Call(data.tf_dataset, {"epochs": 1}),  # the others are those of the loader
        "PreparedData.tf_export": Call(data.tf_export, {"model": None, "folder": folder / "saved"}),
        "Query": Call(answered(bundle), {"user": user, "history": [item], **filters(user, item), "recent": (), "k": 1}),
        "Recommendations.to_frame": Call(run.recommend(k=1).to_frame, {"library": "arrow"}),
        "TrainedRun.recommend": Call(run.recommend, {"users": [user], "k": 2}),
        "TrainedRun.score": Call(run.score, {"rows": frame}),
        "Workspace": Call(recsys.Workspace, {"root": folder / "another"}),
        "compare": Call(recsys.compare, {"runs": [run, again], "html": folder / "page.html"}),
        "config_from_frame": Call(
            recsys.config_from_frame,
            {"interactions": frame, "workspace": workspace, **columns, "label": None, "model": "ease", "train": {}},
        ),
        "dataset_from_frames": Call(
            recsys.dataset_from_frames, {"workspace": workspace, "interactions": frame, "movies": frame}
        ),
        "download": Call(recsys.download, {"dataset": config, "workspace": workspace, "force": False, **quiet}),
        "etl": Call(recsys.etl, {"config": config, "workspace": workspace, "force": False, **quiet}),
        "evaluate": Call(recsys.evaluate, {"run": run, "config": config.evaluate, "force": False, **quiet}),
        "export": Call(recsys.export, {
            "run": run, "out": folder / "bundle", "format": "bundle", "histories": True, "tables": "fp32", "verify": True,
            "force": True, **quiet,
        }),
        "load_bundle": Call(recsys.load_bundle, {"path": exported, "verify": False}),
        "load_config": Call(recsys.load_config, {"source": config.model_dump(), "overrides": ["train.seed=3"]}),
        "train": Call(recsys.train, {"config": config, "workspace": workspace, "resume": False, "force": False, **quiet}),
    }  # fmt: skip


def filters(user: Any, item: Any) -> dict[str, Any]:
    return {
        "candidates": [item], "exclude": [item], "exclude_seen": True, "where": "movieId > 1", "diversity": 0.5, "features": {},
    }  # fmt: skip


def events(stage: Any, **options: Any) -> list[Any]:
    return list(recsys.Events(stage, **options))


def loader(data: recsys.PreparedData) -> Callable[..., Any]:
    return lambda **options: next(iter(data.loader(**options)))


def answered(bundle: recsys.LoadedBundle) -> Callable[..., Any]:
    return lambda **fields: bundle.answer([recsys.Query(**fields)])


def foreign_error(call: Call, name: str, value: Any) -> str | None:
    """Return what a call raises that is no error of recsys; the exceptions of the caller's own stage are his."""
    if name == "stage" and callable(value):
        return None
    try:
        call.function(**{**call.arguments, name: value})
    except recsys.RecsysError as error:
        return None if error.message else f"{name}={value!r:.40}: no message"
    except Exception as error:
        return f"{name}={value!r:.40}: {type(error).__name__}: {error!s:.150}"
    return None


NAMES = [line.partition("(")[0] for line in python_names() if "(" in line and not line.endswith("(self)")]
CLASSES = ["Events", "Query", "Workspace"]


@pytest.mark.parametrize("public", [*NAMES, *CLASSES])
def test_hostile_arguments_are_accepted_or_refused_by_recsys(
    calls: dict[str, Call], public: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # some of the values are valid names of files
    call = calls[public]
    raised = [one for name in call.arguments for value in HOSTILE if (one := foreign_error(call, name, value))]
    assert not raised


@pytest.mark.parametrize("public", sorted({*NAMES, *CLASSES} - {"PreparedData.tf_export", "download"}))
def test_the_arguments_beside_the_hostile_ones_work(calls: dict[str, Call], public: str) -> None:
    calls[public].function(**calls[public].arguments)
