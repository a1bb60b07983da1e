"""The part of a fitted plan that single rows need, and the indexes of its vocabularies in a folder."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from recsys_cli.errors import DataError
from recsys_cli.features.columns import row_column
from recsys_cli.features.schema import file_of
from recsys_cli.features.spec import Spec
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.ops.foreign import ForeignOp
from recsys_cli.ops.grouping import GroupOp
from recsys_cli.ops.numeric import FILLED
from recsys_cli.ops.op import Op
from recsys_cli.ops.program import FLAT, INTERACTIONS, Gather, Locate
from recsys_cli.ops.vocabulary import VocabularyIndex
from recsys_cli.serving.arrays import read_array, read_offsets


@dataclass(frozen=True)
class Node:
    """A step over rows.

    Attributes:
        op: The op, restricted to the needed columns.
        index: Its position in the state.
        writes: Its outputs by name, with their types if the caller has to bring them.
        brought: Whether it reads other rows, so that the caller brings the outputs.
    """

    op: Op | Gather | Locate
    index: int
    writes: Mapping[str, pa.DataType | None]
    brought: bool = False


@dataclass(frozen=True)
class Slice:
    """The needed part of a plan.

    Attributes:
        nodes: Steps in order.
        inputs: Types of the required columns: raw ones, and outputs of ops that read other rows.
        brought: The op of each of the latter.
    """

    nodes: tuple[Node, ...]
    inputs: Mapping[str, pa.DataType]
    brought: Mapping[str, str]


def slice_plan(fitted: FittedPlan, wanted: Collection[str]) -> Slice:
    """Return the part of a plan that computes some columns of the interactions."""
    needed: set[str] = set(wanted)
    nodes: list[Node] = []
    inputs: dict[str, pa.DataType] = {}
    brought: dict[str, str] = {}
    for node in reversed(list(_nodes(fitted))):
        hit = needed & set(node.writes)
        if not hit:
            continue
        if node.brought:
            inputs |= {name: cast("pa.DataType", node.writes[name]) for name in sorted(hit)}
            brought |= dict.fromkeys(hit, node.op.name)
            needed -= set(node.writes)
            continue
        part = _restricted(node, hit)
        nodes.append(part)
        needed = (needed - set(part.writes)) | _reads(part)
        if isinstance(part.op, Gather) and not fitted.has_cold(part.op.table, train=False):
            needed.discard(row_column(part.op.table))
    raw = fitted.inputs[INTERACTIONS]
    inputs = {name: raw.field(name).type for name in raw.names if name in needed} | inputs
    return Slice(tuple(reversed(nodes)), inputs, brought)


def _nodes(fitted: FittedPlan) -> Iterator[Node]:
    """Yield the steps of the interactions in order: those before the split, after it, and the joins of the flat layout."""
    program = fitted.program
    specs = {field.name: Spec(field.type) for field in fitted.inputs[INTERACTIONS]}
    for index, op in program.rows:
        if op.drops_only or not op.acts:
            continue
        outputs = op.outputs({name: specs[name] for name in op.reads})
        specs = {name: spec for name, spec in ({} if op.replaces else specs).items() if name not in outputs}
        specs |= {name: spec for name, spec in outputs.items() if spec is not None}
        writes = {name: None if spec is None else spec.type for name, spec in outputs.items()}
        yield Node(op, index, writes, brought=op.phase == "rows" and "encoder" not in op.modules)
    for step in program.transforms(None):
        if not isinstance(step.op, Locate) or fitted.has_cold(step.op.key, train=False):
            yield Node(step.op, step.index, dict.fromkeys(step.writes))
    for key in program.keys:
        names = [name for name, _, home in program.columns if home == key and name not in fitted.plan.drop]
        if names and all((FLAT, state) in fitted.state for state in Gather(key, tuple(names)).states):
            yield Node(Gather(key, tuple(names)), FLAT, dict.fromkeys(names))


def _restricted(node: Node, hit: set[str]) -> Node:
    """Restrict an op to the columns whose outputs are needed."""
    op: Any = node.op
    if isinstance(op, Gather):
        op = replace(op, columns=tuple(name for name in op.columns if name in hit))
        return replace(node, op=op, writes=dict.fromkeys(op.columns))
    if isinstance(op, Locate | ForeignOp):
        return node
    if isinstance(op, GroupOp):
        groups = tuple(group for group in op.columns if hit & set(op.written(group).values()))
        return replace(node, op=op.model_copy(update={"columns": groups}), writes=dict.fromkeys(hit))
    if op.encodes and not op.separable:
        return replace(node, writes=dict.fromkeys(hit))  # one vocabulary, but each column is encoded on its own
    if not op.separable:
        return node
    columns = tuple(name for name in op.reads if hit & _written(op, name))
    if not columns:
        return node
    part = op.only(columns)
    return replace(
        node, op=part, writes=dict.fromkeys(set(node.writes) & set().union(*(_written(op, n) for n in columns)))
    )


def _reads(node: Node) -> set[str]:
    return set(node.writes) if node.op.encodes else set(node.op.reads_to_apply)


def _written(op: Op, column: str) -> set[str]:
    """Return the outputs of a column of an op that computes each column independently."""
    return {column, op.renames[column]} if op.renames else {column, column + FILLED}


def build_indexes(fitted: FittedPlan, built: Mapping[str, VocabularyIndex]) -> dict[str, VocabularyIndex]:
    """Return the indexes of all vocabularies, and of cold keys by their column of table rows.

    Args:
        fitted: The fitted plan.
        built: Indexes that exist already.
    """
    cold = {row_column(key): fitted.cold_keys(key) for key in fitted.program.keys}
    tables = fitted.vocabularies | {name: table for name, table in cold.items() if table is not None}
    rest = {name: table for name, table in tables.items() if name not in built}
    return {**built, **{name: VocabularyIndex.build(table.column("value")) for name, table in rest.items()}}


def write_indexes(indexes: Mapping[str, VocabularyIndex], folder: Path) -> None:
    """Write a subfolder for each index."""
    for name, index in indexes.items():
        write_index(index, folder / file_of(name).removesuffix(".parquet"))


def write_index(index: VocabularyIndex, folder: Path) -> None:
    """Write the arrays of an index as `.npy` files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in index.arrays.items():
        np.save(folder / f"{name}.npy", array, allow_pickle=False)


def open_indexes(folder: Path) -> dict[str, VocabularyIndex]:
    """Memory-map the indexes of `write_indexes`.

    Raises:
        DataError: A file is missing or damaged.
    """
    return {unquote(path.name): open_index(path) for path in sorted(folder.iterdir()) if path.is_dir()}


def open_index(folder: Path) -> VocabularyIndex:
    """Memory-map an index.

    Raises:
        DataError: A file is missing or damaged.
    """
    try:
        hashes = read_array(folder / "hashes.npy", "uint64", mapped=True)
        size = len(hashes)
        if (hashes[1:] < hashes[:-1]).any():
            raise ValueError(f"{folder / 'hashes.npy'}: the hashes do not ascend")
        positions = read_array(folder / "positions.npy", "int32", length=size, below=size, mapped=True)
        arrays = {"hashes": hashes, "positions": positions}
        if (folder / "bytes.npy").exists():
            arrays["offsets"] = read_offsets(folder / "offsets.npy", length=size + 1)
            num_bytes = int(arrays["offsets"][-1])
            arrays["bytes"] = read_array(folder / "bytes.npy", "uint8", length=num_bytes, mapped=True)
    except (OSError, ValueError) as error:
        raise DataError(f"{folder}: not a vocabulary index: {error}", hint="export the run again") from error
    # Indexing of a `memmap` object is slow.
    return VocabularyIndex({name: np.asarray(array) for name, array in arrays.items()})
