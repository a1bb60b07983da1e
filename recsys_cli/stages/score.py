"""`recsys score`: predictions for given rows, from a run or a bundle."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recsys_cli.config import RunConfig
from recsys_cli.data.files import SUFFIXES, locate
from recsys_cli.data.raw_files import unpacked_name
from recsys_cli.detect.dialect import dialect
from recsys_cli.errors import DataError, listed
from recsys_cli.etl.new_rows import Applied, NewRows
from recsys_cli.evaluation.loaded_run import config_of, model_in_context
from recsys_cli.evaluation.pointwise import score_rows
from recsys_cli.events import Emit, ignore
from recsys_cli.models.embedding import TableType
from recsys_cli.ops.program import INTERACTIONS
from recsys_cli.serving.bundle import load_bundle
from recsys_cli.serving.recommender import Recommender
from recsys_cli.stages.apply import apply
from recsys_cli.stages.tables import check_format, table_writer
from recsys_cli.workspace import Bundle, TrainedRun, Workspace

_DIALECT = {"separator", "quote", "decimal", "encoding", "format"}


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
        source: A run, which reads and prepares rows as by its config, or a bundle, which detects the separator of text files.
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
    check_format(output, force=force)
    if isinstance(source, Bundle):
        recommender = load_bundle(source.folder)
        table = _read(rows, recommender)
        scores = recommender.score({name: table.column(name).to_pylist() for name in table.column_names})
        probabilistic = recommender.served.model.probabilistic
    else:
        scores, probabilistic = score_by_run(source, rows, workspace, emit=emit)
    with table_writer(output, pa.schema([("score", pa.float32())])) as write:
        write(scores)
    return Scored(output, len(scores), probabilistic)


def _read(rows: Path, recommender: Recommender) -> pa.Table:
    """Return the rows for a bundle in the types of its plan, by the reader of runs."""
    (file, *_), fitted = locate("rows", [str(rows)]), recommender.served.fitted
    found = dialect(file) | ({} if Path(unpacked_name(file.name)).suffix.lower() in SUFFIXES else {"format": "csv"})
    options = {"files": str(rows)} | {name: found[name] for name in _DIALECT & found.keys()}
    dataset = {"name": "files", "interactions": options}
    config = RunConfig.model_validate({"dataset": dataset, "features": fitted.plan})
    raw, kinds = fitted.inputs[INTERACTIONS], dict(recommender.rows.inputs)
    kinds |= {name: raw.field(name).type for name in recommender.rows.optional_inputs}
    is_raw = {field.name for field in raw if kinds.get(field.name) == field.type}
    schema = pa.schema([raw.field(n) if n in is_raw else pa.field(n, kind) for n, kind in kinds.items()])
    new = NewRows(config, [str(rows)], schema)
    if missing := [name for name in recommender.rows.inputs if name not in new.names]:
        raise DataError(
            f"{rows}: no column {', '.join(missing)}; the columns are {listed(new.names)}",
            hint="name the columns as in the raw data; text files have a header",
        )
    return pa.concat_tables([new.schema().empty_table(), *new.batches()])


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
    run: TrainedRun, workspace: Workspace, applied: Applied, *, tables: TableType = "fp32", newest: bool = False
) -> tuple[npt.NDArray[np.float32], bool]:
    """Score prepared rows by a run, with embedding tables of a type; see `score_by_run`."""
    config, data = config_of(run), workspace.data_of(run)
    model = model_in_context(run, config, data, tables=tables, newest=newest)
    scores = score_rows(model, applied.output, applied.schema, batch_size=config.evaluate.batch_size)
    return scores, model.probabilistic
