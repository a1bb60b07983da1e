"""`--format onnx`: raw values to scores in one ONNX file, checked by ONNX Runtime."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from recsys_cli.errors import MissingExtraError
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.serving.export.check import BATCH_SIZES, eager_outputs, largest_difference
from recsys_cli.serving.export.feeding import feed
from recsys_cli.serving.export.inputs import Input, signature
from recsys_cli.serving.export.programs import Export, programs_of
from recsys_cli.serving.export.raw_samples import RawSampler
from recsys_cli.serving.export.torch_format import traced
from recsys_cli.serving.export.written import Written, total_bytes
from recsys_cli.serving.served import ServedModel
from recsys_cli.workspace import write_json

if TYPE_CHECKING:
    from onnx import ModelProto
    from onnxruntime import InferenceSession

_PROGRAM = "model/"
_LARGEST = 1_900_000_000
"""Maximum bytes of one ONNX file; the weights of larger programs are in a second file."""


def export_onnx(served: ServedModel, folder: Path) -> Written:
    """Write `<name>.onnx` for each program of a model, and signature.json.

    Args:
        served: The model.
        folder: An existing folder.

    Raises:
        ConfigError: The model has no exportable program.
        MissingExtraError: The extra `onnx` is not installed.
        DataError: The outputs of a program differ from the model's.
    """
    _require()
    fitted = FittedPlan.read(served.data.folder)
    signatures, differences = [], dict.fromkeys(BATCH_SIZES, 0.0)
    reasons: dict[str, str] = {}
    for export in programs_of(served):
        path = folder / f"{export.name}.onnx"
        model, inputs, encoded = _with_rows(export, served, fitted)
        _save(model, path)
        width, found = _check(path, export, inputs, served)
        differences = {size: max(differences[size], found[size]) for size in BATCH_SIZES}
        reasons |= encoded
        signatures.append(signature(inputs, output=export.output, width=width, program=path.name))
    write_json(folder / "signature.json", {"format": "onnx", "programs": signatures})
    return Written(folder, differences, total_bytes(folder), reasons)


def _require() -> None:
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise MissingExtraError.for_extra("onnx", what="--format onnx") from error


def _with_rows(
    export: Export, served: ServedModel, fitted: FittedPlan
) -> tuple[ModelProto, tuple[Input, ...], dict[str, str]]:
    """Return the program with the encoding of raw rows before it, its inputs, and those that stay encoded."""
    from onnx import TensorProto, compose, helper

    from recsys_cli.serving.export.graph import ML
    from recsys_cli.serving.export.row_graph import encode_rows

    program = compose.add_prefix(_program(export, served), _PROGRAM)
    rows, encoded = encode_rows(fitted, served.schema, export.program.inputs, prefix=_PROGRAM)
    body = program.graph
    shape: list[str | int] = ["batch", *(dim.dim_value for dim in body.output[0].type.tensor_type.shape.dim[1:])]
    end = helper.make_node("Identity", [body.output[0].name], [export.output])
    graph = helper.make_graph(
        [*rows.nodes, *body.node, end],
        f"recsys {served.source.name}",
        rows.value_infos(),
        [helper.make_tensor_value_info(export.output, TensorProto.FLOAT, shape)],
        [*rows.constants, *body.initializer],
    )
    opsets = [*program.opset_import, helper.make_opsetid(ML, 2)]
    model = helper.make_model(
        graph, opset_imports=opsets, ir_version=program.ir_version, functions=program.functions, producer_name="recsys"
    )
    return model, tuple(rows.inputs.values()), encoded


def _program(export: Export, served: ServedModel) -> ModelProto:
    names = [one.name for one in export.program.inputs]
    with _silent():
        program = torch.onnx.export(
            traced(export, served), dynamo=True, input_names=names, output_names=["output"], verbose=False
        )
    assert program is not None
    model: ModelProto = program.model_proto
    return model


def _save(model: ModelProto, path: Path) -> None:
    import onnx

    onnx.save_model(model, path, save_as_external_data=model.ByteSize() > _LARGEST, location=f"{path.name}.data")


def _check(
    path: Path, export: Export, inputs: tuple[Input, ...], served: ServedModel
) -> tuple[int | None, dict[int, float]]:
    """Compare raw rows by ONNX Runtime with the row encoder and the model; return the width of the output."""
    session = session_of(path)
    sampler = RawSampler(served, _read(export, served))
    differences = {}
    for size in BATCH_SIZES:
        sample = sampler.sample(size, seed=size)
        outputs = session.run(None, feed(inputs, sample.columns, sample.batch.features))[0]
        eager = eager_outputs(export.eager, sample.batch)
        differences[size] = largest_difference(eager, outputs, what=path.name)
    return (None if outputs.ndim == 1 else outputs.shape[1]), differences


def session_of(path: Path) -> InferenceSession:
    """Return a session of ONNX Runtime on the CPU.

    Raises:
        MissingExtraError: The extra `onnx` is not installed.
    """
    _require()
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def _read(export: Export, served: ServedModel) -> frozenset[str]:
    """Return the interaction columns that a program reads."""
    weights = {column.weights for column in served.schema.features}
    return frozenset(one.name for one in export.program.inputs) - weights


@contextmanager
def _silent() -> Iterator[None]:
    """Silence the exporter's notes on packages that are not installed, and on its optimization."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
