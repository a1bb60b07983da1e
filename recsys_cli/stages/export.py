"""`recsys export`: a trained run as a bundle for serving, or in another format, and its verification on raw rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from recsys_cli.errors import ConfigError, DataError, MissingArtifactError, RecsysError
from recsys_cli.etl.reading.reader import Inputs
from recsys_cli.etl.titles import read_item_values
from recsys_cli.evaluation.loaded_run import config_of
from recsys_cli.evaluation.ranking import cannot_rank
from recsys_cli.evaluation.result import Evaluation
from recsys_cli.events import Emit, Message, ignore
from recsys_cli.features.schema import FIRST, Role
from recsys_cli.models.embedding import TableType
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.ops.program import INTERACTIONS
from recsys_cli.registry import load as load_component
from recsys_cli.registry import suggest
from recsys_cli.serving.served import ServedModel
from recsys_cli.stages.apply import apply
from recsys_cli.stages.names import evaluated_title, names_of
from recsys_cli.stages.score import score_rows_by_run
from recsys_cli.workspace import Artifact, Bundle, TrainedRun, Workspace, check_output, key_of, replacing_folder


@dataclass(frozen=True)
class Format:
    """An export format; functions by import path.

    Attributes:
        write: Writes a served model into an empty folder, with a manifest; see `serving.bundle_writer.write_bundle`.
        load: Loads the folder; the result scores raw columns by `score`.
        use: Command to use the folder, `{}`.
    """

    write: str
    load: str
    use: str = "recsys recommend {} --user ID"


FORMATS: Mapping[str, Format] = {
    "bundle": Format("recsys_cli.serving.bundle_writer:write_bundle", "recsys_cli.serving.bundle_writer:load_rows"),
    "onnx": Format(
        "recsys_cli.serving.export.formats:write_onnx",
        "recsys_cli.serving.export.formats:load_onnx",
        use="load the programs as {}/signature.json describes",
    ),
    "torch": Format(
        "recsys_cli.serving.export.formats:write_torch",
        "recsys_cli.serving.export.formats:load_torch",
        use="load the programs as {}/signature.json describes",
    ),
    "triton": Format(
        "recsys_cli.serving.export.triton.repository:write_repository",
        "recsys_cli.serving.export.triton.repository:RepositoryRows",
        use="tritonserver --model-repository {}",
    ),
}
"""The export formats by name; one line each."""


@dataclass(frozen=True)
class Exported:
    """An exported folder with the number of verified rows, None without verification, and the command to use it."""

    folder: Path
    manifest: Mapping[str, Any]
    num_bytes: int
    verified: int | None
    use: str


def export(  # noqa: PLR0913 - all but two are keywords with a default
    run: TrainedRun,
    workspace: Workspace,
    *,
    kind: str = "bundle",
    out: Path | None = None,
    histories: bool = True,
    tables: TableType = "fp32",
    newest: bool = False,
    verify: bool = True,
    force: bool = False,
    emit: Emit = ignore,
) -> Exported:
    """Write a finished run in an export format.

    Args:
        run: The run.
        workspace: Workspace of its data.
        kind: One of `FORMATS`.
        out: The folder to write; None for bundles/RUN in the workspace.
        histories: Include the user histories.
        newest: As of now: histories and seen items have the held-out rows too, and items without a row in the joined item
            tables, or in that of titles without one, leave the ranking.
        tables: Type of the embedding tables' rows. With fp16 or int8 the quality lost is measured on the held-out split.
        verify: Score a sample of raw rows by the run, with tables of the same type, and by the written folder, and compare.
        force: Replace an existing folder.
        emit: Receives messages.

    Raises:
        ConfigError: The format or the type of tables is unknown, the folder exists, or the model needs the histories.
        MissingArtifactError: The run is not finished, or its prepared data is missing.
        DataError: A score of the bundle differs from that of the run.
    """
    check_kind(kind)
    check_tables(tables)
    name = run.folder.name if kind == "bundle" else f"{run.folder.name}-{kind}"
    target = workspace.root / "bundles" / name if out is None else out
    _check_target(target, force=force)
    served, source = served_run(run, workspace, newest=newest, emit=emit), _source(run)
    if tables != "fp32":
        from recsys_cli.serving.export.tables import measure_tables

        source["tables"] = measure_tables(run, config_of(run), workspace.data_of(run), tables, emit=emit)
        served = served.with_tables(tables)
    if source.get("warning"):
        emit(Message(source["warning"], "warning"))
    verified = None
    with workspace.lock(f"export-{target.name}", emit=emit), replacing_folder(target) as folder:
        write = load_component(FORMATS[kind].write)
        write(
            served,
            folder,
            key=bundle_key(run, kind, histories=histories, tables=tables, newest=newest),
            source=source,
            histories=histories,
        )
        if verify and served.model.folds_in and not histories:
            emit(Message(f"{target.name} is not verified: its scores need the histories of requests", "warning"))
        elif verify:
            scorer = load_component(FORMATS[kind].load)(folder)
            verified = verify_scores(
                run, workspace, scorer.score, name=target.name, tables=tables, newest=newest, emit=emit
            )
    manifest = Artifact(target).manifest
    num_bytes = sum(size for size, _ in manifest["files"].values())
    has_lists = served.items.num_train > 1 and not cannot_rank(served.model, served.tables, served.schema, device="cpu")
    use = FORMATS[kind].use if has_lists or kind != "bundle" else "recsys score {} ROWS"
    return Exported(target, manifest, num_bytes, verified, use.format(target))


def bundle_key(
    run: TrainedRun, kind: str = "bundle", *, histories: bool = True, tables: str = "fp32", newest: bool
) -> str:
    """Return the key of an export."""
    return key_of(kind, run.key, histories, tables, *(["newest"] if newest else []))


def check_kind(kind: str) -> None:
    """Check the name of a format.

    Raises:
        ConfigError: It is none of `FORMATS`.
    """
    if kind not in FORMATS:
        raise ConfigError(f"unknown format {kind!r}{suggest(kind, FORMATS)}", hint=f"use {', '.join(FORMATS)}")


def check_tables(tables: str) -> None:
    """Check the type of the embedding tables' rows.

    Raises:
        ConfigError: It is no `TableType`.
    """
    if tables not in (known := get_args(TableType)):
        raise ConfigError(
            f"unknown type of tables {tables!r:.60}{suggest(str(tables), known)}", hint=f"use {', '.join(known)}"
        )


def served_run(run: TrainedRun, workspace: Workspace, *, newest: bool = False, emit: Emit = ignore) -> ServedModel:
    """Load a run for recommendations, with titles and raw values of items; `newest` as of `export`."""
    config, data = config_of(run), workspace.data_of(run)
    names = names_of(config, data, workspace, title=evaluated_title(run) or config.evaluate.title)
    raw, titles = workspace.raw(config.dataset.name).fetch().folder, names.titles
    values, listed = read_item_values(config, raw, names.values(Role.ITEM), FittedPlan.read(data.folder))
    served = ServedModel.of_run(run, workspace, titles=titles, item_values=values, newest=newest)
    if listed is None and titles is not None:
        listed = titles.is_valid()
    return _without_retired(served, listed, emit) if newest and listed is not None else served


def _without_retired(served: ServedModel, listed: pa.Array, emit: Emit) -> ServedModel:
    """Return a model whose catalog has only the listed items; ids and histories stay.

    Tables without the items of many of the latest rows are no list of what is on offer: they have features of some, or are damaged.
    """
    own, histories = listed[: served.items.num_train].to_numpy(zero_copy_only=False), served.histories
    is_listed = np.full(int(histories.items.max(initial=len(served.counts))) + 1, True)
    is_listed[FIRST : FIRST + len(own)] = own
    latest = histories.items
    if histories.times is not None and len(latest) > _LATEST:
        latest = latest[np.argpartition(histories.times, -_LATEST)[-_LATEST:]]
    gone = ~is_listed[: len(served.counts)] & (served.counts > 0)
    text = f"{gone.sum():,} of {np.count_nonzero(served.counts):,} items have no row in the item tables: "
    theirs = 1 - is_listed[latest].mean() if len(latest) else 0.0
    if theirs > _SOLD:
        emit(Message(f"{text}they are recommended, as {theirs:.0%} of the latest rows are theirs", "warning"))
        return served
    if gone.any():
        emit(Message(text + "they are not recommended"))
    return replace(served, counts=np.where(gone, 0, served.counts))


def _source(run: TrainedRun) -> dict[str, Any]:
    """Return run, data, dataset, chosen options and metrics, for manifest and model card."""
    manifest = run.manifest
    trained = {"name": run.folder.name, "key": run.key, "trained": manifest.get("created")}
    source = {"run": trained, "data": manifest["data"], "metrics": {}}
    source["chosen"] = manifest.get("chosen") or {}
    try:
        evaluation = Evaluation.read(run.evaluated().evaluation)
    except (MissingArtifactError, DataError):
        return {**source, "dataset": config_of(run).dataset.called, "metrics": {}, "split": None}
    metrics = {name: one.value for name, one in evaluation.metrics.items() if one.value is not None}
    return {
        **source, "dataset": evaluation.dataset, "metrics": metrics, "split": evaluation.split, "warning": evaluation.warning,
    }  # fmt: skip


def _check_target(target: Path, *, force: bool) -> None:
    check_output(target)
    if target.exists() and not target.is_dir():
        raise ConfigError(f"{target} is a file", hint="name another folder with --out")
    if target.is_dir() and any(target.iterdir()):
        if not Bundle(target).exists:
            raise ConfigError(f"{target} is not empty, and no bundle", hint="name another folder with --out")
        check_output(target, force=force)


TOLERANCE = 1e-5
"""Maximum difference of scores, relative to the score if that is above 1."""
SAMPLE_ROWS = 1_000
_LATEST = 1_000
"""Latest rows that show which items are on offer."""
_SOLD = 0.25
"""Highest share of items in the latest rows that leave the ranking at once."""
_CANDIDATES = 200_000
"""First rows of the raw data to sample from."""

Score = Callable[[Mapping[str, Any]], npt.NDArray[np.float32]]


def verify_scores(
    run: TrainedRun,
    workspace: Workspace,
    score: Score,
    *,
    name: str,
    tables: TableType = "fp32",
    newest: bool = False,
    emit: Emit,
) -> int | None:
    """Compare the scores of a sample of raw rows by a run, with tables of a type and `newest` as of `export`, and by an artifact.

    Returns the number of compared rows; None, with a warning, without raw data.

    Raises:
        DataError: A score differs by more than `TOLERANCE`.
    """
    try:
        raw = sample_rows(run, workspace)
    except (RecsysError, pa.ArrowException, ValueError) as error:
        emit(Message(f"{name} is not verified: the raw data of {run.folder.name} cannot be read: {error}", "warning"))
        return None
    rows = {column: raw.column(column).to_pylist() for column in raw.column_names}
    with workspace.scratch() as scratch:
        path = scratch / "rows.parquet"
        pq.write_table(raw, path, store_schema=False)
        applied = apply(str(run.folder), [str(path)], workspace, output=scratch / "rows.prepared.parquet")
        expected, _ = score_rows_by_run(run, workspace, applied, tables=tables, newest=newest)
        actual = score(rows)
        differs = ~(np.abs(actual - expected) <= TOLERANCE * np.maximum(1, np.abs(expected)))
        if differs.any():
            row = int(np.flatnonzero(differs)[0])
            shown = ", ".join(f"{column}={values[row]!r}" for column, values in rows.items())
            raise DataError(
                f"{name}: row {row + 1} of the sample scores {actual[row]:.7g}, and {expected[row]:.7g} by the run: {shown}",
                hint="report this as a defect, with the config; --no-verify exports without the comparison",
            )
    return len(expected)


def sample_rows(run: TrainedRun, workspace: Workspace) -> pa.Table:
    """Return a sample of the raw interactions in the columns of the plan.

    Raises:
        RecsysError: The raw data is gone, or not readable by the config any more.
    """
    config, data = config_of(run), workspace.data_of(run)
    wanted = FittedPlan.read(data.folder).inputs[INTERACTIONS]
    inputs = Inputs.of(config, workspace.raw(config.dataset.name).fetch().folder, limit=_CANDIDATES)
    rows = next(iter(inputs.interactions.values())).read()
    step = max(1, rows.num_rows // SAMPLE_ROWS)
    return rows.take(pa.array(np.arange(0, rows.num_rows, step)[:SAMPLE_ROWS])).cast(wanted)
