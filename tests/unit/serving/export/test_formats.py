"""Every exportable model as ONNX and torch.export, from raw values or encoded ids to the model's own scores."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import recsys_cli as recsys
from recsys_cli.batch import Batch
from recsys_cli.errors import ConfigError, DataError, MissingExtraError
from recsys_cli.serving.export import check, onnx_format
from recsys_cli.serving.export.onnx_format import export_onnx
from recsys_cli.serving.export.programs import programs_of
from recsys_cli.serving.export.torch_format import encoded_inputs, export_torch
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


@pytest.mark.parametrize("model", MODELS)
def test_onnx_equals_the_model(model: str, served: MakeServed, tmp_path: Path) -> None:
    written = export_onnx(served(model), tmp_path)

    assert set(written.differences) == {1, 2, 257}
    assert max(written.differences.values()) < 1e-5
    assert written.encoded == ({"agent": "HashBucket has no ONNX form"} if model in RANKING else {})
    signature = json.loads((tmp_path / "signature.json").read_text())
    names = [program["file"] for program in signature["programs"]]
    assert names == ["model.onnx", *(["user_tower.onnx", "item_tower.onnx"] if model == "two-tower" else [])]


@pytest.mark.parametrize("model", MODELS)
def test_torch_export_equals_the_model(model: str, served: MakeServed, tmp_path: Path) -> None:
    written = export_torch(served(model), tmp_path)

    assert set(written.differences) == {1, 2, 257}
    assert max(written.differences.values()) < 1e-5


@pytest.mark.parametrize("model", RANKING)
def test_padded_lists_equal_ragged_ones(model: str, served: MakeServed) -> None:
    from recsys_cli.serving.export.samples import encoded_sample

    loaded = served(model)
    (one,) = programs_of(loaded)
    inputs = encoded_inputs(one, loaded, 100)

    with torch.no_grad():
        padded = one.program(inputs)
        ragged = one.eager(encoded_sample(loaded, 100, seed=100))

    torch.testing.assert_close(padded, ragged, atol=1e-6, rtol=1e-6)
    assert ragged.std() > 1e-3


@pytest.mark.parametrize("model", REFUSED)
def test_other_models_are_refused(model: str, served: MakeServed, tmp_path: Path) -> None:
    for write in (export_onnx, export_torch):
        with pytest.raises(ConfigError, match=REFUSED[model]) as error:
            write(served(model), tmp_path)
        assert "recsys export RUN --format bundle" in (error.value.hint or "")


@pytest.mark.parametrize("kind", ["onnx", "torch"])
def test_export_is_verified_by_raw_rows(
    kind: str, runs: Callable[[str], recsys.TrainedRun], export_workspace: recsys.Workspace, tmp_path: Path
) -> None:
    made = export(runs("fm"), export_workspace, kind=kind, out=tmp_path / "out")

    assert made.verified == 400
    assert made.manifest["export"] == kind
    assert made.manifest["encoded"]
    with pytest.raises(DataError, match=f"format {kind}"):
        recsys.load_bundle(tmp_path / "out")


def test_torch_program_loads_without_this_package(served: MakeServed, tmp_path: Path) -> None:
    loaded = served("deepfm")
    export_torch(loaded, tmp_path)
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
    def shifted(eager: Callable[[Batch], torch.Tensor], batch: Batch) -> torch.Tensor:
        scores = check.eager_outputs(eager, batch)
        return scores + 1e-4 * (torch.arange(len(scores)) == 1)

    monkeypatch.setattr(onnx_format, "eager_outputs", shifted)

    with pytest.raises(DataError, match=r"model\.onnx: row 2 of a batch of 2"):
        export_onnx(served("logistic"), tmp_path)


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
        export_onnx(served("logistic"), tmp_path)

    assert error.value.exit_code == 5
    assert error.value.hint == "pip install 'recsys-cli[onnx]'"
