"""Raw values at the edges, through ONNX files without anything else: boundaries, null, NaN, infinity, unseen and cold values."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import load

import recsys_cli as recsys
from recsys_cli.evaluation.loaded_run import config_of
from recsys_cli.serving.export.artifact import load_onnx, write_onnx
from recsys_cli.serving.export.onnx_format import export_onnx
from recsys_cli.serving.export.raw_inputs import NULL_INTEGER, NULL_TEXT
from recsys_cli.serving.recommender import Recommender
from recsys_cli.serving.served import ServedModel
from recsys_cli.stages.export import export

MakeServed = Callable[[str], ServedModel]
ROW: Mapping[str, Any] = {
    "userId": 3, "movieId": 4, "city": "Ulm", "age": 40, "price": 2.5, "pages": 100, "height": 1.2, "agent": "a",
    "tags": ["x", "y"], "strengths": [0.5, 0.25],
}  # fmt: skip
EDGES: Mapping[str, list[Any]] = {
    "userId": [None, 999, -1, 2**62],
    "movieId": [None, 16, 18, 999, 0],  # 16 to 18 are in the table only
    "city": [None, "", "Köln", "Paris", "ulm"],
    "age": [None, 0, 18, 17, 61, 10**12],
    "price": [None, float("nan"), -0.5, 0.0, 1e6],
    "pages": [0, 49, 50, 199, 200, 10**9],
    "height": [None, float("nan"), 0.5, 0.49999999999999994, 1.0, 1.7, float("inf"), float("-inf")],
    "agent": ["a", "unseen", ""],
    "tags": [[], ["x"], ["unseen", "z"], [None, "x"]],
}


@pytest.fixture(scope="module")
def exported(served: MakeServed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("onnx")
    write_onnx(served("deepfm"), folder, key="k", source={"run": {}})
    return folder


@pytest.mark.parametrize("name", EDGES)
def test_edges_have_the_scores_of_the_bundle(name: str, exported: Path, served: MakeServed) -> None:
    rows: dict[str, list[Any]] = {column: [] for column in ROW}
    for value in EDGES[name]:
        for column, usual in ROW.items():
            rows[column].append(value if column == name else usual)
        if name == "tags":
            rows["strengths"][-1] = [0.5] * len(value)

    expected = Recommender(served("deepfm")).score(rows)

    np.testing.assert_allclose(load_onnx(exported).score(rows), expected, atol=1e-6, rtol=1e-5)


def test_signature_is_enough_to_call_the_file(served: MakeServed, tmp_path: Path) -> None:
    export_onnx(served("mf"), tmp_path)
    (program,) = json.loads((tmp_path / "signature.json").read_text())["programs"]
    session = onnxruntime.InferenceSession(tmp_path / program["file"])
    inputs = {one["name"]: np.array([1, 5, one["null"]], dtype=one["dtype"]) for one in program["inputs"]}

    (scores,) = session.run([program["outputs"][0]["name"]], inputs)

    assert [one.name for one in session.get_inputs()] == [one["name"] for one in program["inputs"]]
    assert session.get_inputs()[0].shape == ["batch"]
    rows = {name: [value] * 3 for name, value in ROW.items()} | {"userId": [1, 5, None], "movieId": [1, 5, None]}
    expected = Recommender(served("mf")).score(rows)
    np.testing.assert_allclose(scores, expected, atol=1e-6)


def test_signature_declares_null_lists_and_encoded_inputs(exported: Path) -> None:
    (program,) = json.loads((exported / "signature.json").read_text())["programs"]
    inputs = {one["name"]: one for one in program["inputs"]}

    assert inputs["age"] == {"name": "age", "dtype": "int64", "shape": ["batch"], "null": NULL_INTEGER}
    assert inputs["city"]["null"] == NULL_TEXT
    assert inputs["price"]["null"] == "NaN"
    assert inputs["tags"]["shape"] == ["batch", "length of tags"]
    assert inputs["tags.mask"] == {
        "name": "tags.mask", "dtype": "bool", "shape": ["batch", "length of tags"], "mask_of": "tags",
    }  # fmt: skip
    assert "agent" not in inputs
    assert inputs["agent.encoded"]["why_encoded"] == "HashBucket has no ONNX form"
    assert program["outputs"] == [{"name": "score", "dtype": "float32", "shape": ["batch"]}]


def test_lists_are_sums_without_loops(exported: Path) -> None:
    used = {node.op_type for node in load(exported / "model.onnx").graph.node}

    assert not used & {"Loop", "Scan", "If", "Unique", "NonZero"}


def test_towers_multiply_to_the_score(served: MakeServed, tmp_path: Path) -> None:
    export_onnx(served("two-tower"), tmp_path)
    rows = {"userId": np.array([1, 2, 20]), "movieId": np.array([1, 17, 999])}
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
