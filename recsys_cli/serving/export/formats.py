"""Exported folders of `recsys export --format onnx|torch`: program files, signature.json, and the plan that encodes raw rows."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from recsys_cli.errors import MissingExtraError
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.serving.bundle_writer import copy_data, versions
from recsys_cli.serving.encoder import RowEncoder
from recsys_cli.serving.export.program import (
    BATCH_SIZES,
    Array,
    Export,
    Input,
    eager_outputs,
    encoded_sample,
    feed,
    largest_difference,
    programs_of,
    signature,
)
from recsys_cli.serving.served import ServedModel
from recsys_cli.workspace import Bundle, read_json, write_json, write_manifest

MAX_ROWS = 4_096
"""Rows scored at once; affects only memory."""
EXAMPLE_ROWS = 3
"""Rows of the example batch of a trace; 0 and 1 would become constants."""
MAX_FILE_BYTES = 1_900_000_000
"""Size of one ONNX file; the weights of larger programs are in a second file."""

Run = Callable[[Mapping[str, Array]], npt.NDArray[np.float32]]


class ExportedRows:
    """Scores of raw rows: encoded by the plan of an exported folder, scored by its first program."""

    def __init__(self, bundle: Bundle, run: Run) -> None:
        programs = read_json(bundle.signature, hint=bundle.remake, expected={"programs": list})["programs"]
        self._inputs, self._run = [Input.read(entry) for entry in programs[0]["inputs"]], run
        schema = bundle.data.schema
        weighted = {column.weights: column.name for column in schema.features if column.weights is not None}
        names = {weighted.get(one.name, one.name) for one in self._inputs}
        self._encoder = RowEncoder(FittedPlan.read(bundle.data.folder), schema, only=names)

    def score(self, rows: Mapping[str, Sequence[Any]]) -> npt.NDArray[np.float32]:
        """Return the scores of raw rows: values by column, None for null; other columns are ignored."""
        number = len(next(iter(rows.values())))
        scores = [np.empty(0, np.float32)]
        for start in range(0, number, MAX_ROWS):
            part = {name: values[start : start + MAX_ROWS] for name, values in rows.items()}
            scores.append(self._run(feed(self._inputs, self._encoder.encode(part))))
        return np.concatenate(scores)


def write_onnx(
    served: ServedModel, folder: Path, *, key: str, source: Mapping[str, Any], histories: bool = True
) -> Bundle:
    """Write `<name>.onnx` for each program of a model, which needs no histories, signature.json, the plan and a manifest.

    Raises:
        ConfigError: The model has no exportable program.
        MissingExtraError: The extra `onnx` is not installed.
        DataError: The outputs of a program differ from the model's.
    """
    del histories
    _require_onnx()
    return _write(served, folder, "onnx", _save_onnx, _run_onnx, about={"key": key, **source})


def write_torch(
    served: ServedModel, folder: Path, *, key: str, source: Mapping[str, Any], histories: bool = True
) -> Bundle:
    """Write `<name>.pt2` of torch.export for each program of a model, which load without this package; see `write_onnx`."""
    del histories
    return _write(served, folder, "torch", _save_torch, _run_torch, about={"key": key, **source})


def load_onnx(folder: Path) -> ExportedRows:
    """Load the ONNX file of scores for raw rows."""
    _require_onnx()
    return ExportedRows(Bundle(folder), _run_onnx(folder / "model.onnx"))


def load_torch(folder: Path) -> ExportedRows:
    """Load the torch.export file of scores for raw rows."""
    return ExportedRows(Bundle(folder), _run_torch(folder / "model.pt2"))


def _write(
    served: ServedModel,
    folder: Path,
    kind: str,
    save: Callable[[Export, ServedModel, Path], Path],
    load: Callable[[Path], Run],
    *,
    about: Mapping[str, Any],
) -> Bundle:
    bundle = Bundle(folder)
    programs, differences = [], dict.fromkeys(BATCH_SIZES, 0.0)
    for export in programs_of(served):
        path = save(export, served, folder / export.name)
        run = load(path)
        for size in BATCH_SIZES:
            batch = encoded_sample(served, size, seed=size)
            outputs = run(feed(export.program.inputs, batch.features))
            difference = largest_difference(eager_outputs(export.eager, batch), outputs, what=path.name)
            differences[size] = max(differences[size], difference)
        width = None if outputs.ndim == 1 else outputs.shape[1]
        programs.append(signature(export.program.inputs, output=export.output, width=width, program=path.name))
    write_json(bundle.signature, {"format": kind, "programs": programs})
    copy_data(served.data, bundle.data, tables=False)
    manifest = {
        **about,
        "export": kind,
        "model": served.source.name,
        "differences": {str(size): difference for size, difference in differences.items()},
        "versions": versions(),
    }
    write_manifest(folder, "Bundle", manifest)
    return bundle


def _traced(export: Export, served: ServedModel) -> torch.export.ExportedProgram:
    """Return the program as a graph with a dynamic batch and dynamic list lengths."""
    features = encoded_sample(served, EXAMPLE_ROWS, seed=EXAMPLE_ROWS).features
    inputs = {name: torch.from_numpy(array) for name, array in feed(export.program.inputs, features).items()}
    dynamic = {
        one.name: dict.fromkeys(range(len(one.shape)), torch.export.Dim.DYNAMIC) for one in export.program.inputs
    }
    with torch.no_grad():
        return torch.export.export(export.program, (inputs,), dynamic_shapes=(dynamic,), strict=False)


def _save_torch(export: Export, served: ServedModel, stem: Path) -> Path:
    path = stem.with_suffix(".pt2")
    torch.export.save(_traced(export, served), path)
    return path


def _run_torch(path: Path) -> Run:
    program = torch.export.load(path).module()

    def run(inputs: Mapping[str, Array]) -> npt.NDArray[np.float32]:
        with torch.no_grad():
            outputs: npt.NDArray[np.float32] = program({n: torch.from_numpy(a) for n, a in inputs.items()}).numpy()
        return outputs

    return run


def _save_onnx(export: Export, served: ServedModel, stem: Path) -> Path:
    import onnx

    path, names = stem.with_suffix(".onnx"), [one.name for one in export.program.inputs]
    with _silent():
        program = torch.onnx.export(
            _traced(export, served), dynamo=True, input_names=names, output_names=[export.output], verbose=False
        )
    assert program is not None
    model = program.model_proto
    onnx.save_model(model, path, save_as_external_data=model.ByteSize() > MAX_FILE_BYTES, location=f"{path.name}.data")
    return path


def _run_onnx(path: Path) -> Run:
    """Return the program in ONNX Runtime on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def run(inputs: Mapping[str, Array]) -> npt.NDArray[np.float32]:
        outputs: npt.NDArray[np.float32] = session.run(None, dict(inputs))[0]
        return outputs

    return run


def _require_onnx() -> None:
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise MissingExtraError.for_extra("onnx", what="--format onnx") from error


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
