"""Exported folders of `recsys export --format onnx|torch`: program files, signature.json, and the plan for encoded inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from recsys_cli.batch import Feature
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.serving.bundle_writer import copy_data, versions
from recsys_cli.serving.encoder import RowEncoder
from recsys_cli.serving.export.feeding import Array, feed
from recsys_cli.serving.export.inputs import Input
from recsys_cli.serving.export.written import Written
from recsys_cli.serving.served import ServedModel
from recsys_cli.workspace import Bundle, read_json, write_manifest

_ROWS = 4_096
"""Rows scored at once; affects only memory."""

Run = Callable[[Mapping[str, Array]], npt.NDArray[np.float32]]


class ExportedRows:
    """Scores of raw rows by an exported program.

    Args:
        bundle: The exported folder.
        run: The program of scores.
    """

    def __init__(self, bundle: Bundle, run: Run) -> None:
        signature = read_json(bundle.signature, hint=bundle.remake, expected={"programs": list})
        self._inputs = [Input.read(entry) for entry in signature["programs"][0]["inputs"]]
        self._data, self._run = bundle.data, run

    def score(self, rows: Mapping[str, Sequence[Any]]) -> npt.NDArray[np.float32]:
        """Return the scores of raw rows.

        Args:
            rows: Raw values by column, None for null; other columns are ignored.
        """
        number = len(next(iter(rows.values())))
        parts = [np.empty(0, np.float32)]
        for start in range(0, number, _ROWS):
            part = {name: values[start : start + _ROWS] for name, values in rows.items()}
            parts.append(self._run(feed(self._inputs, part, self._encoded(part))))
        return np.concatenate(parts)

    def _encoded(self, rows: Mapping[str, Sequence[Any]]) -> Mapping[str, Feature]:
        return {} if self._encoder is None else self._encoder.encode(rows)

    @cached_property
    def _encoder(self) -> RowEncoder | None:
        """The encoder of the inputs that the program does not encode itself."""
        names = [one.of for one in self._inputs if one.of is not None]
        if not names:
            return None
        fitted, schema = FittedPlan.read(self._data.folder), self._data.schema
        weighted = {column.weights: column.name for column in schema.features if column.weights is not None}
        return RowEncoder(fitted, schema, only={weighted.get(name, name) for name in names})


def write_onnx(
    served: ServedModel, folder: Path, *, key: str, source: Mapping[str, Any], histories: bool = True
) -> Bundle:
    """Write a model as ONNX files, with a manifest; see `onnx_format.export_onnx`."""
    from recsys_cli.serving.export.onnx_format import export_onnx

    del histories
    return _finished(served, export_onnx(served, folder), "onnx", {"key": key, **source})


def write_torch(
    served: ServedModel, folder: Path, *, key: str, source: Mapping[str, Any], histories: bool = True
) -> Bundle:
    """Write a model as files of torch.export, with a manifest; see `torch_format.export_torch`."""
    from recsys_cli.serving.export.torch_format import export_torch

    del histories
    return _finished(served, export_torch(served, folder), "torch", {"key": key, **source})


def load_onnx(folder: Path) -> ExportedRows:
    """Load the ONNX file of scores for raw rows."""
    from recsys_cli.serving.export.onnx_format import session_of

    session = session_of(folder / "model.onnx")

    def run(inputs: Mapping[str, Array]) -> npt.NDArray[np.float32]:
        scores: npt.NDArray[np.float32] = session.run(None, dict(inputs))[0]
        return scores

    return ExportedRows(Bundle(folder), run)


def load_torch(folder: Path) -> ExportedRows:
    """Load the torch.export file of scores for raw rows."""
    import torch

    program = torch.export.load(folder / "model.pt2").module()

    def run(inputs: Mapping[str, Array]) -> npt.NDArray[np.float32]:
        with torch.no_grad():
            scores: npt.NDArray[np.float32] = program({n: torch.from_numpy(a) for n, a in inputs.items()}).numpy()
        return scores

    return ExportedRows(Bundle(folder), run)


def _finished(served: ServedModel, written: Written, kind: str, about: dict[str, Any]) -> Bundle:
    """Add the plan for inputs that stay encoded, and the manifest."""
    bundle = Bundle(written.folder)
    if written.encoded:
        copy_data(served.data, bundle.data, tables=False)
    manifest = {
        **about,
        "export": kind,
        "model": served.source.name,
        "differences": {str(size): difference for size, difference in written.differences.items()},
        "encoded": dict(written.encoded),
        "versions": versions(),
    }
    write_manifest(bundle.folder, "Bundle", manifest)
    return bundle
