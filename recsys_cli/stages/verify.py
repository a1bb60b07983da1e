"""Verification of a bundle: a sample of raw rows through ETL and model, and through the bundle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from recsys_cli.batch import Feature, Ragged
from recsys_cli.data import open_source
from recsys_cli.errors import DataError, RecsysError
from recsys_cli.etl.reading.reader import Reader
from recsys_cli.etl.reading.times import DETECT
from recsys_cli.evaluation.loaded_run import config_of
from recsys_cli.events import Emit, Message
from recsys_cli.loader.reading import groups_of
from recsys_cli.loader.records import Layout, read_records
from recsys_cli.models.embedding import TableType
from recsys_cli.ops.program import INTERACTIONS
from recsys_cli.stages.apply import apply
from recsys_cli.stages.score import score_rows_by_run
from recsys_cli.workspace import TrainedRun, Workspace

TOLERANCE = 1e-5
"""Maximum difference of scores, relative to the score if that is above 1."""
SAMPLE_ROWS = 1_000
_CANDIDATES = 200_000
"""First rows of the raw data to sample from."""

Score = Callable[[Mapping[str, Any]], npt.NDArray[np.float32]]
Encode = Callable[[Mapping[str, Any]], Mapping[str, Feature]]


def verify_scores(
    run: TrainedRun,
    workspace: Workspace,
    score: Score,
    *,
    encode: Encode | None,
    name: str,
    tables: TableType = "fp32",
    emit: Emit,
) -> int | None:
    """Compare the scores of a sample of raw rows by a run and by an artifact.

    Args:
        run: The run.
        workspace: Workspace of its raw and prepared data.
        score: Scores of raw columns by the artifact.
        encode: Model inputs of raw columns by the artifact, to name the first column that differs; None if unavailable.
        name: Name of the artifact, for errors.
        tables: Type of the embedding tables' rows, in the run's model, too.
        emit: Receives a warning if there is nothing to compare.

    Returns:
        The number of compared rows; None without raw data.

    Raises:
        DataError: A score differs by more than `TOLERANCE`.
    """
    raw = sample_rows(run, workspace)
    if raw is None:
        emit(Message(f"{name} is not verified: the raw data of {run.folder.name} is gone", "warning"))
        return None
    rows = {column: raw.column(column).to_pylist() for column in raw.column_names}
    with workspace.scratch() as scratch:
        path = scratch / "rows.parquet"
        pq.write_table(raw, path, store_schema=False)
        applied = apply(str(run.folder), [str(path)], workspace, output=scratch / "rows.prepared.parquet")
        expected, _ = score_rows_by_run(run, workspace, applied, tables=tables)
        actual = score(rows)
        differs = ~(np.abs(actual - expected) <= TOLERANCE * np.maximum(1, np.abs(expected)))
        if differs.any():
            row = int(np.flatnonzero(differs)[0])
            where = _column(row, applied.output, applied.schema.features, encode, rows)
            raise DataError(
                f"{name}: row {row + 1} of the sample scores {actual[row]:.7g}, and {expected[row]:.7g} by the run{where}: "
                f"{_shown(rows, row)}",
                hint="report this as a defect, with the config; --no-verify exports without the comparison",
            )
    return len(expected)


def sample_rows(run: TrainedRun, workspace: Workspace) -> pa.Table | None:
    """Return a sample of the raw interactions in the columns of the plan; None without raw data."""
    from recsys_cli.ops.fitted_plan import FittedPlan

    config, data = config_of(run), workspace.data_of(run)
    wanted = FittedPlan.read(data.folder).inputs[INTERACTIONS]
    folder = workspace.raw(config.dataset.name).folder
    parts: list[pa.Table] = []
    try:
        tables = open_source(config.dataset.name, config.dataset.options).tables(folder)
        table = next(table for table in tables if table.name == INTERACTIONS)
        times = {name: DETECT for name in config.features.raw_times if name in wanted.names}
        reader = Reader(table, columns=tuple(wanted.names), times=times)
        for batch in reader.batches():
            parts.append(
                pa.table([column.cast(f.type) for column, f in zip(batch.columns, wanted, strict=True)], schema=wanted)
            )
            if sum(part.num_rows for part in parts) >= _CANDIDATES:
                break
    except (RecsysError, StopIteration, pa.ArrowException):
        return None
    rows = pa.concat_tables(parts)
    step = max(1, rows.num_rows // SAMPLE_ROWS)
    return rows.take(pa.array(np.arange(0, rows.num_rows, step)[:SAMPLE_ROWS]))


def _column(row: int, path: Path, columns: Any, encode: Encode | None, rows: Mapping[str, Any]) -> str:
    """Return the first column with different model inputs in a row, as a part of a message."""
    if encode is None:
        return ""
    groups = groups_of(path, columns)
    expected = read_records(Layout.of(columns, groups), groups).span(row, row + 1)
    actual = encode({name: values[row : row + 1] for name, values in rows.items()})
    for column in columns:
        if column.name in actual and not _equal(actual[column.name], expected[column.name]):
            return f"; column {column.name} differs"
    return "; all its columns are equal, so the weights differ"


def _equal(one: Feature, other: Feature) -> bool:
    if isinstance(one, Ragged) and isinstance(other, Ragged):
        return torch.equal(one.values.double(), other.values.double())
    if isinstance(one, Ragged) or isinstance(other, Ragged):
        return False
    return torch.allclose(one.double(), other.double(), equal_nan=True)


def _shown(rows: Mapping[str, Any], row: int) -> str:
    return ", ".join(f"{name}={values[row]!r}" for name, values in rows.items())
