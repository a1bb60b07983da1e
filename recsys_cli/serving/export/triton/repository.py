"""Triton model repositories: both models of a bundle, and their generated config.pbtxt."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recsys_cli.features.schema import Role
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.serving.bundle import load_bundle
from recsys_cli.serving.bundle_writer import write_bundle
from recsys_cli.serving.encoder import RowEncoder
from recsys_cli.serving.export.triton.backend import Array, Tensor, answer_outputs, columns_of, distinct, query_inputs
from recsys_cli.serving.served import ServedModel
from recsys_cli.workspace import PreparedData, write_manifest, write_text
from recsys_cli.workspace.artifacts import TritonRepository

_HEAD = """\
# {purpose}
# N rows per request. An optional input that is left out is null in all rows.
# NAME.null (BOOL, in the shape of NAME) marks null values; NaN is null, too.
# NAME.length (INT64) has the number of elements of each list before the padding; -1 is null, without it no list is padded."""
_MODEL = '''\
"""Triton model: {purpose}. Written by recsys_cli; settings are in config.pbtxt, data is in the bundle."""

from recsys_cli.serving.export.triton.backend import {model} as TritonPythonModel

__all__ = ["TritonPythonModel"]
'''
_BATCHING = """\
dynamic_batching {
  preferred_batch_size: [ 16, 64 ]
  max_queue_delay_microseconds: 100
}
instance_group [ { count: 1 kind: KIND_CPU } ]"""
_SAFE = frozenset(range(0x20, 0x7F)) - set(b"\"'\\")


def config_pbtxt(name: str, purpose: str, *, inputs: Sequence[Tensor], outputs: Sequence[Tensor], bundle: str) -> str:
    """Return the configuration of a model with its purpose in the first line; inputs get their null masks and lengths.

    The path of the bundle starts at the folder of the model.

    Raises:
        ConfigError: A column has the name of a null mask or of list lengths.
    """
    lines = [
        _HEAD.format(purpose=" ".join(purpose.split())),
        f"name: {quoted(name)}",
        'backend: "python"',
        "max_batch_size: 4096",
        *(line for one in distinct(inputs) for part in one.parts() for line in _tensor("input", part)),
        *(line for one in outputs for line in _tensor("output", one)),
        _BATCHING,
        f'parameters {{ key: "bundle" value {{ string_value: {quoted(bundle)} }} }}',
    ]
    return "\n".join(lines) + "\n"


def quoted(text: str) -> str:
    """Return a string of the protobuf text format; all but plain characters are octal escapes."""
    return '"' + "".join(chr(byte) if byte in _SAFE else f"\\{byte:03o}" for byte in text.encode()) + '"'


def _tensor(field: str, tensor: Tensor) -> Iterator[str]:
    yield f"{field} {{"
    yield f"  name: {quoted(tensor.name)}"
    yield f"  data_type: TYPE_{tensor.dtype}"
    yield f"  dims: [ {-1 if tensor.ragged else 1} ]"
    if field == "input" and tensor.ragged:
        yield "  allow_ragged_batch: true"
    if field == "input" and not tensor.required:
        yield "  optional: true"
    yield "}"


_KEYS = (Role.USER, Role.ITEM)


def write_repository(
    served: ServedModel, folder: Path, *, key: str, source: Mapping[str, Any], histories: bool = True
) -> TritonRepository:
    """Write a model repository into an empty folder, whose name begins those of the models, and then its manifest.

    Raises:
        ConfigError: The model needs the histories, or a column has the name of a null mask.
    """
    name = re.sub(r"[^A-Za-z0-9._-]", "_", folder.name.removesuffix("-triton")).strip(".") or "model"
    score, recommend = folder / f"{name}_score", folder / f"{name}_recommend"
    bundle = score / "bundle"
    bundle.mkdir(parents=True)
    write_bundle(served, bundle, key=key, source=source, histories=histories)
    score_config = config_pbtxt(
        score.name,
        f"Raw rows to scores of {served.called}.",
        inputs=score_tensors(row_types(served.data), served.data),
        outputs=[Tensor("score", "FP32")],
        bundle="bundle",
    )
    recommend_config = config_pbtxt(
        recommend.name,
        f"Users or histories to the best items by {served.called}.",
        inputs=query_inputs(served),
        outputs=answer_outputs(served),
        bundle=f"../{score.name}/bundle",
    )
    write_model(score, score_config, "ScoreModel", "raw rows to scores")
    write_model(recommend, recommend_config, "RecommendModel", "users or histories to the best items")
    manifest = {"key": key, **source, "bundle": f"{score.name}/bundle", "models": [score.name, recommend.name]}
    write_manifest(folder, "TritonRepository", manifest)
    return TritonRepository(folder)


def row_types(data: PreparedData) -> Mapping[str, pa.DataType]:
    """Return the raw columns that the features need, with their Arrow types."""
    return RowEncoder(FittedPlan.read(data.folder), data.schema).inputs


def score_tensors(types: Mapping[str, pa.DataType], data: PreparedData) -> list[Tensor]:
    """Return the inputs of the model that scores; users and items are required."""
    roles = FittedPlan.read(data.folder).plan.roles
    return [Tensor.of(name, kind, required=roles.get(name) in _KEYS) for name, kind in types.items()]


class RepositoryRows:
    """Scores raw rows as the served model does: through tensors. For verification, and for requests of clients."""

    def __init__(self, folder: Path) -> None:
        bundle = TritonRepository(folder).bundle
        self._rows = load_bundle(bundle.folder, verify=True).rows
        self.types = row_types(bundle.data)
        self.tensors = score_tensors(self.types, bundle.data)

    def request(self, rows: Mapping[str, Sequence[Any] | Array]) -> dict[str, Array]:
        """Return the tensors of raw rows.

        Raises:
            DataError: A value does not fit its type.
        """
        tensors: dict[str, Array] = {}
        for one in self.tensors:
            tensors |= one.write(self.types[one.name], rows[one.name])
        return tensors

    def score(self, rows: Mapping[str, Sequence[Any]]) -> npt.NDArray[np.float32]:
        """Return the scores of raw rows."""
        return self._rows.score(columns_of(self.request(rows), self.tensors)[0])


def write_model(folder: Path, config: str, model: str, purpose: str) -> None:
    """Write the configuration of a model, and its program: an import of a class of `backend`."""
    (folder / "1").mkdir(parents=True)
    write_text(folder / "config.pbtxt", config)
    write_text(folder / "1" / "model.py", _MODEL.format(model=model, purpose=purpose))
