"""Embedding tables as fp16 and int8 rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
import torch

import recsys_cli as recsys
from recsys_cli.errors import ConfigError, DataError
from recsys_cli.events import ignore
from recsys_cli.models.embedding.tables import QuantizedTable
from recsys_cli.serving.bundle import read_bundle
from recsys_cli.serving.export.program import encoded_sample
from recsys_cli.serving.recommender import Recommender
from recsys_cli.serving.served import ServedModel
from recsys_cli.stages.export import export, verify_scores
from recsys_cli.workspace import Artifact, Bundle

TYPES = ("fp16", "int8")


def test_rows_are_within_half_a_step() -> None:
    table = torch.randn(50, 8) * torch.logspace(-3, 2, 50).unsqueeze(1)
    table[0] = 0

    half, whole = (QuantizedTable.of(table, kind) for kind in TYPES)

    ids = torch.tensor([0, 3, 49, 3])
    assert torch.equal(half.rows(ids), table.half().float()[ids])
    step = table.abs().amax(1, keepdim=True) / 127
    assert ((whole.dequantized - table).abs() <= step * 0.5001).all()
    assert torch.equal(whole.rows(ids), whole.dequantized[ids])
    assert torch.equal(whole.rows(ids)[0], torch.zeros(8))


def test_values_beyond_fp16_stay_finite() -> None:
    assert torch.isfinite(QuantizedTable.of(torch.tensor([[1e6, -1e6]]), "fp16").dequantized).all()


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("model", ["fm", "mf", "two-tower", "lightgcn"])
def test_bundle_has_quantized_tables(
    model: str,
    kind: str,
    runs: Callable[[str], recsys.TrainedRun],
    served: Callable[[str], ServedModel],
    export_workspace: recsys.Workspace,
    tmp_path: Path,
) -> None:
    made = export(runs(model), export_workspace, tables=kind, out=tmp_path / "out")  # type: ignore[arg-type]

    assert made.verified == 400
    about = made.manifest["tables"]
    assert about["type"] == kind
    assert about["bytes"] < about["fp32_bytes"] * (0.51 if kind == "fp16" else 0.4)
    assert all({"fp32", "quantized"} == set(values) for values in about["metrics"].values())
    assert about["metrics"]
    loaded = read_bundle(Bundle(tmp_path / "out"), verify=True)
    expected = served(model).with_tables(kind)  # type: ignore[arg-type]
    assert loaded.model.num_parameters == served(model).model.num_parameters
    batch = encoded_sample(expected, 50)
    for one in (loaded, expected):
        one.model.set_context(_context(one))
    with torch.inference_mode():
        assert torch.equal(loaded.model.score(batch), expected.model.score(batch))


def test_onnx_has_quantized_tables(
    runs: Callable[[str], recsys.TrainedRun], export_workspace: recsys.Workspace, tmp_path: Path
) -> None:
    made = export(runs("fm"), export_workspace, kind="onnx", tables="int8", out=tmp_path / "out")

    assert made.verified == 400
    tensors = onnx.load(made.folder / "model.onnx").graph.initializer
    rows = 23  # of 20 users
    assert any(one.data_type == onnx.TensorProto.INT8 and one.dims[0] == rows for one in tensors)
    assert not any(
        one.data_type == onnx.TensorProto.FLOAT and list(one.dims[:1]) == [rows] and len(one.dims) > 1
        for one in tensors
    )


@pytest.mark.parametrize("kind", TYPES)
def test_rows_of_another_type_fail_the_comparison(
    kind: str,
    served: Callable[[str], ServedModel],
    runs: Callable[[str], recsys.TrainedRun],
    export_workspace: recsys.Workspace,
) -> None:
    exact = Recommender(served("fm")).score

    with pytest.raises(DataError, match=r"row .* of the sample scores"):
        verify_scores(runs("fm"), export_workspace, exact, name="fm", tables=kind, emit=ignore)  # type: ignore[arg-type]


def test_python_has_formats_and_types_of_tables(runs: Callable[[str], recsys.TrainedRun], tmp_path: Path) -> None:
    folder = recsys.export(runs("fm"), tmp_path / "out", format="torch", tables="fp16", progress=False)

    manifest = Artifact(folder).manifest
    assert (manifest["export"], manifest["tables"]["type"]) == ("torch", "fp16")
    assert (folder / "model.pt2").is_file()
    for wrong, message in (
        ({"format": "onxx"}, "unknown format 'onxx' .did you mean onnx"),
        ({"tables": "int4"}, "unknown type of tables 'int4'"),
        ({"tables": 8}, "unknown type of tables 8"),
    ):
        with pytest.raises(ConfigError, match=message):
            recsys.export(runs("fm"), tmp_path / "wrong", progress=False, **wrong)  # type: ignore[arg-type]
    assert not (tmp_path / "wrong").exists()


def test_model_without_tables_is_refused(
    runs: Callable[[str], recsys.TrainedRun], export_workspace: recsys.Workspace, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="ease has no embedding tables"):
        export(runs("ease"), export_workspace, tables="int8", out=tmp_path / "out")


def _context(served: ServedModel) -> object:
    from recsys_cli.models.model import TrainingContext

    return TrainingContext(served.histories.interactions, served.tables.join)
