"""`recsys score`: predictions for given rows, from a run or a bundle."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recsys_cli.errors import ConfigError
from recsys_cli.etl.new_rows import Applied
from recsys_cli.evaluation.loaded_run import config_of, model_in_context
from recsys_cli.evaluation.pointwise import score_rows
from recsys_cli.events import Emit, ignore
from recsys_cli.models.embedding import TableType
from recsys_cli.serving.bundle import load_bundle
from recsys_cli.stages.apply import apply
from recsys_cli.stages.tables import check_format, read_columns, table_writer
from recsys_cli.workspace import Bundle, TrainedRun, Workspace


@dataclass(frozen=True)
class Scored:
    """Result of `score`.

    Attributes:
        output: The file.
        rows: Number of rows.
        probabilistic: Whether scores predict the label.
    """

    output: Path
    rows: int
    probabilistic: bool


def score(
    source: TrainedRun | Bundle,
    rows: Path,
    output: Path,
    workspace: Workspace,
    *,
    force: bool = False,
    emit: Emit = ignore,
) -> Scored:
    """Score rows in the format of the dataset's interactions, and write the column `score` in their order.

    Args:
        source: A run, which prepares rows by the ETL, or a bundle, which reads parquet or csv.
        rows: The file of rows; label, weight and timestamp may be missing.
        output: A .parquet, .csv or .jsonl file, written atomically.
        workspace: Workspace of the run.
        force: Overwrite an existing file.
        emit: Receives progress.

    Raises:
        ConfigError: The output exists, or its format is unknown.
        DataError: A column is missing, or a value does not fit its type.
        TrainingError: A score is not finite.
    """
    check_format(output)
    if output.exists() and not force:
        raise ConfigError(f"{output} already exists", hint="choose another file with --out, or overwrite it: --force")
    if isinstance(source, Bundle):
        recommender = load_bundle(source.folder)
        texts = [name for name, kind in recommender.inputs.items() if pa.types.is_string(kind)]
        table = read_columns(rows, recommender.inputs, optional=recommender.optional_inputs, texts=texts)
        scores = recommender.score({name: table.column(name).to_pylist() for name in table.column_names})
        probabilistic = recommender.served.model.probabilistic
    else:
        scores, probabilistic = score_by_run(source, rows, workspace, emit=emit)
    with table_writer(output, pa.schema([("score", pa.float32())])) as write:
        write(scores)
    return Scored(output, len(scores), probabilistic)


def score_by_run(
    run: TrainedRun, rows: Path, workspace: Workspace, *, emit: Emit = ignore
) -> tuple[npt.NDArray[np.float32], bool]:
    """Score rows by the ETL and the model of a run.

    Returns:
        Scores, shape (N,), and whether they predict the label.
    """
    with workspace.scratch() as scratch:
        applied = apply(str(run.folder), [str(rows)], workspace, output=scratch / "rows.prepared.parquet", emit=emit)
        return score_rows_by_run(run, workspace, applied)


def score_rows_by_run(
    run: TrainedRun, workspace: Workspace, applied: Applied, *, tables: TableType = "fp32"
) -> tuple[npt.NDArray[np.float32], bool]:
    """Score prepared rows by a run, with embedding tables of a type; see `score_by_run`."""
    config, data = config_of(run), workspace.data_of(run)
    model = model_in_context(run, config, data, tables=tables)
    scores = score_rows(model, applied.output, applied.schema, batch_size=config.evaluate.batch_size)
    return scores, model.probabilistic
