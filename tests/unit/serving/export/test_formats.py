"""Every exportable model as ONNX and torch.export: encoded ids and raw rows to the model's own scores."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import load

import recsys_cli as recsys
from recsys_cli.batch import Batch
from recsys_cli.errors import ConfigError, DataError, MissingExtraError
from recsys_cli.evaluation.loaded_run import config_of
from recsys_cli.serving.export import formats
from recsys_cli.serving.export.formats import load_onnx, load_torch, write_onnx, write_torch
from recsys_cli.serving.export.program import EXPORTABLE, Export, encoded_sample, feed, programs_of
from recsys_cli.serving.recommender import Recommender
from recsys_cli.serving.served import ServedModel
from recsys_cli.stages.export import export
from tests.served_runs import COLLABORATIVE

MakeServed = Callable[[str], ServedModel]

RANKING = ("mlp", "fm", "deepfm", "dcn-v2", "dlrm", "mmoe", "ple", "wide-deep", "neumf", "logistic")
BY_IDS = ("mf", "lightgcn")
MODELS = (*RANKING, *BY_IDS, "two-tower")
REFUSED = {
    "ease": "history", "sasrec": "history", "popularity": "history", "lightgbm": "neural network",
    COLLABORATIVE: "collaborative features",
}  # fmt: skip


ABOUT = {"key": "k", "source": {"run": {}}}
WRITERS = {"onnx": write_onnx, "torch": write_torch}


def encoded_inputs(export: Export, served: ServedModel, size: int) -> dict[str, torch.Tensor]:
    features = encoded_sample(served, size, seed=size).features
    return {name: torch.from_numpy(array) for name, array in feed(export.program.inputs, features).items()}


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("model", MODELS)
def test_programs_equal_the_model(model: str, kind: str, served: MakeServed, tmp_path: Path) -> None:
    differences = WRITERS[kind](served(model), tmp_path, **ABOUT).manifest["differences"]

    assert set(differences) == {"1", "2", "257"}
    assert max(differences.values()) < 1e-5
    signature = json.loads((tmp_path / "signature.json").read_text())
    names = [Path(program["file"]).stem for program in signature["programs"]]
    assert names == ["model", *(["user_tower", "item_tower"] if model == "two-tower" else [])]


@pytest.mark.parametrize("model", RANKING)
def test_padded_lists_equal_ragged_ones(model: str, served: MakeServed) -> None:
    loaded = served(model)
    (one,) = programs_of(loaded)
    inputs = encoded_inputs(one, loaded, 100)

    with torch.no_grad():
        padded = one.program(inputs)
        ragged = one.eager(encoded_sample(loaded, 100, seed=100))

    torch.testing.assert_close(padded, ragged, atol=1e-6, rtol=1e-6)
    assert ragged.std() > 1e-3


@pytest.mark.parametrize("model", REFUSED)
def test_other_models_are_refused_with_the_formats_and_models_that_work(
    model: str, served: MakeServed, tmp_path: Path
) -> None:
    for write in WRITERS.values():
        with pytest.raises(ConfigError, match=REFUSED[model]) as error:
            write(loaded := served(model), tmp_path, **ABOUT)
        assert f"recsys export {loaded.source.name} --format bundle, or triton" in (error.value.hint or "")
        assert f"onnx and torch take {', '.join(EXPORTABLE)}" in (error.value.hint or "")
    assert {*EXPORTABLE} == {*MODELS}


@pytest.mark.parametrize("kind", ["onnx", "torch"])
def test_export_is_verified_by_raw_rows(
    kind: str, runs: Callable[[str], recsys.TrainedRun], export_workspace: recsys.Workspace, tmp_path: Path
) -> None:
    made = export(runs("fm"), export_workspace, kind=kind, out=tmp_path / "out")

    assert made.verified == 400
    assert made.manifest["export"] == kind
    with pytest.raises(DataError, match=f"format {kind}"):
        recsys.load_bundle(tmp_path / "out")


def test_torch_program_loads_without_this_package(served: MakeServed, tmp_path: Path) -> None:
    loaded = served("deepfm")
    write_torch(loaded, tmp_path, **ABOUT)
    (one,) = programs_of(loaded)
    inputs = encoded_inputs(one, loaded, 5)
    torch.save(inputs, tmp_path / "inputs.pt")
    code = (
        "import sys, torch\n"
        "program = torch.export.load('model.pt2').module()\n"
        "print(program(torch.load('inputs.pt')).tolist())\n"
        "assert not any(name.startswith('recsys_cli') for name in sys.modules), 'the package was imported'\n"
    )

    done = subprocess.run([sys.executable, "-I", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)

    with torch.no_grad():
        np.testing.assert_allclose(json.loads(done.stdout), one.program(inputs).numpy(), atol=1e-6)


def test_a_program_with_other_scores_fails(served: MakeServed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    eager_outputs = formats.eager_outputs

    def shifted(eager: Callable[[Batch], torch.Tensor], batch: Batch) -> torch.Tensor:
        scores = eager_outputs(eager, batch)
        return scores + 1e-4 * (torch.arange(len(scores)) == 1)

    monkeypatch.setattr(formats, "eager_outputs", shifted)

    with pytest.raises(DataError, match=r"model\.onnx: row 2 of a batch of 2"):
        write_onnx(served("logistic"), tmp_path, **ABOUT)


def test_ids_out_of_range_are_unseen(served: MakeServed) -> None:
    loaded = served("fm")
    (one,) = programs_of(loaded)
    inputs = encoded_inputs(one, loaded, 4)
    with torch.no_grad():
        expected = one.program({**inputs, "userId": torch.full((4,), 2)})
        found = one.program({**inputs, "userId": torch.tensor([-1, 23, 2**40, -(2**63)])})

    torch.testing.assert_close(found, expected)


def test_missing_extra_is_named(served: MakeServed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)

    with pytest.raises(MissingExtraError, match="'onnx' extra") as error:
        write_onnx(served("logistic"), tmp_path, **ABOUT)

    assert error.value.exit_code == 5
    assert error.value.hint == "pip install 'recsys-cli[onnx]'"


ROW: Mapping[str, Any] = {
    "userId": 3, "movieId": 4, "city": "Ulm", "age": 40, "price": 2.5, "pages": 100, "height": 1.2, "agent": "a",
    "tags": ["x", "y"], "strengths": [0.5, 0.25],
}  # fmt: skip
EDGES: Mapping[str, list[Any]] = {
    "userId": [None, 999, -1, 2**62],
    "movieId": [None, 16, 18, 999, 0],  # 16 to 18 are in the table only
    "price": [None, float("nan"), -0.5, 0.0, 1e6],
    "agent": ["a", "unseen", ""],
    "tags": [[], ["x"], ["unseen", "z"], [None, "x"]],
}


@pytest.mark.parametrize("kind", WRITERS)
def test_edges_have_the_scores_of_the_bundle(kind: str, served: MakeServed, tmp_path: Path) -> None:
    WRITERS[kind](served("deepfm"), tmp_path, **ABOUT)
    rows: dict[str, list[Any]] = {column: [] for column in ROW}
    for name, values in EDGES.items():
        for value in values:
            for column, usual in ROW.items():
                rows[column].append(value if column == name else usual)
            if name == "tags":
                rows["strengths"][-1] = [0.5] * len(value)

    found = {"onnx": load_onnx, "torch": load_torch}[kind](tmp_path).score(rows)
    np.testing.assert_allclose(found, Recommender(served("deepfm")).score(rows), atol=1e-6, rtol=1e-5)


def test_signature_is_enough_to_call_the_file(served: MakeServed, tmp_path: Path) -> None:
    write_onnx(served("deepfm"), tmp_path, **ABOUT)
    (program,) = json.loads((tmp_path / "signature.json").read_text())["programs"]
    session = onnxruntime.InferenceSession(tmp_path / program["file"])
    inputs = {one["name"]: np.ones([3] * len(one["shape"]), one["dtype"]) for one in program["inputs"]}
    by_name = {one["name"]: one for one in program["inputs"]}

    (scores,) = session.run([program["outputs"][0]["name"]], inputs)

    assert scores.shape == (3,)
    assert {one.name for one in session.get_inputs()} == set(by_name)
    assert by_name["price"] == {"name": "price", "dtype": "float32", "shape": ["batch"]}
    assert by_name["tags"] == {
        "name": "tags", "dtype": "int64", "shape": ["batch", "length of tags"], "cardinality": 6,
        "out_of_range": "unseen", "padding": 0,
    }  # fmt: skip
    assert not {node.op_type for node in load(tmp_path / program["file"]).graph.node} & {"Loop", "Scan", "If", "Unique"}


def test_towers_multiply_to_the_score(served: MakeServed, tmp_path: Path) -> None:
    write_onnx(served("two-tower"), tmp_path, **ABOUT)
    rows = {"userId": np.array([3, 4, 20]), "movieId": np.array([3, 17, 2])}
    outputs = {}
    for name in ("model", "user_tower", "item_tower"):
        session = onnxruntime.InferenceSession(tmp_path / f"{name}.onnx")
        needed = {one.name for one in session.get_inputs()}
        outputs[name] = session.run(None, {key: value for key, value in rows.items() if key in needed})[0]

    product = (outputs["user_tower"] * outputs["item_tower"]).sum(axis=1)

    np.testing.assert_allclose(product, outputs["model"], atol=1e-5)
    norms = torch.from_numpy(outputs["item_tower"]).norm(dim=1)
    torch.testing.assert_close(norms, torch.ones(3))


def test_flat_layout(
    runs: Callable[[str], recsys.TrainedRun], export_workspace: recsys.Workspace, tmp_path: Path
) -> None:
    config = config_of(runs("fm"))
    flat = recsys.load_config({**config.model_dump(), "etl": {**config.etl.model_dump(), "layout": "flat"}})
    recsys.etl(flat, export_workspace, progress=False)
    run = recsys.train(flat, export_workspace, progress=False)

    assert export(run, export_workspace, kind="onnx", out=tmp_path / "out").verified == 400
