"""The stages as functions of config and workspace; artifacts that are up to date are reused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from recsys_cli.api.boundary import public
from recsys_cli.api.data import PreparedData
from recsys_cli.api.progress import Report, reporting
from recsys_cli.api.run import TrainedRun
from recsys_cli.config import DatasetConfig, EvaluateConfig, RunConfig
from recsys_cli.events import Message
from recsys_cli.workspace import RawData, Workspace

if TYPE_CHECKING:
    from recsys_cli.evaluation import Evaluation
    from recsys_cli.evaluation.compare.comparison import Comparison
    from recsys_cli.models.embedding import TableType

_OTHER_EVALUATION = (
    "the finished run keeps the evaluate section of its training: evaluate(run, config=config.evaluate) takes another"
)


@public
def download(
    dataset: RunConfig | str, workspace: Workspace, *, force: bool = False, progress: Report = True
) -> RawData:
    """Download a dataset.

    Args:
        dataset: Name of a dataset (`recsys ls datasets`), or a config.
        workspace: Workspace of the raw data.
        force: Download even if up to date.
        progress: Draw a progress bar, or call a function with each event.

    Raises:
        DataError: The download failed, or its checksum is wrong.
    """
    from recsys_cli.stages import download as stage

    section = dataset.dataset if isinstance(dataset, RunConfig) else DatasetConfig(name=dataset)
    with reporting("download", progress) as emit:
        return stage.download(section, workspace, force=force, emit=emit).artifact


@public
def etl(config: RunConfig, workspace: Workspace, *, force: bool = False, progress: Report = True) -> PreparedData:
    """Prepare the data of a config: split, fit the feature plan on train, encode.

    Args:
        config: The config; uses its dataset, split, features and etl sections.
        workspace: Workspace of raw and prepared data.
        force: Prepare even if up to date.
        progress: Draw a progress bar, or call a function with each event.

    Raises:
        MissingArtifactError: The dataset is not downloaded.
        ConfigError: The features do not fit the tables.
        DataError: The data has malformed rows.
    """
    from recsys_cli.stages import etl as stage

    with reporting("etl", progress) as emit:
        return PreparedData(stage.etl(config, workspace, force=force, emit=emit).artifact.folder)


@public
def train(
    config: RunConfig, workspace: Workspace, *, resume: bool = False, force: bool = False, progress: Report = True
) -> TrainedRun:
    """Train the model of a config on its prepared data.

    Args:
        config: The config.
        workspace: Workspace of prepared data and runs.
        resume: Resume an interrupted run.
        force: Train even if up to date.
        progress: Draw a progress bar, or call a function with each event.

    Raises:
        MissingArtifactError: The data is not prepared, or there is no run to resume.
        ConfigError: The model does not fit the data.
        TrainingError: The loss is not finite.
    """
    from recsys_cli.evaluation.loaded_run import config_of
    from recsys_cli.stages import train as stage

    with reporting("train", progress) as emit:
        made = stage.train(config, workspace, resume=resume, force=force, emit=emit)
        if made.up_to_date and config_of(made.artifact).evaluate != config.evaluate:
            emit(Message(_OTHER_EVALUATION))
        return TrainedRun(made.artifact.folder)


@public
def evaluate(
    run: TrainedRun, *, config: EvaluateConfig | None = None, force: bool = False, progress: Report = True
) -> Evaluation:
    """Evaluate the model of a run and the baselines; write evaluation.json and report.html to the run's folder.

    Args:
        run: A finished run.
        config: Settings in place of the run's evaluate section.
        force: Evaluate even if up to date.
        progress: Draw a progress bar, or call a function with each event.

    Raises:
        MissingArtifactError: The run is not finished, or its prepared data is missing.
        ConfigError: The split has no rows.
    """
    from recsys_cli.evaluation import Evaluation
    from recsys_cli.stages import evaluate as stage

    workspace = Workspace(run.folder.parent.parent)
    with reporting("evaluate", progress) as emit:
        made = stage.evaluate(run, workspace, config=config, force=force, emit=emit).artifact
    return Evaluation.read(made.evaluation)


@public
def compare(runs: Sequence[TrainedRun], *, html: Path | str | None = None) -> Comparison:
    """Compare evaluated runs of one workspace with the first one, by paired tests.

    Args:
        runs: Two or more evaluated runs.
        html: Path of an HTML page to write.

    Raises:
        ConfigError: Fewer than two runs, or evaluations of different tasks.
        MissingArtifactError: A run is not evaluated.
    """
    from recsys_cli.stages import compare as stage

    workspace = Workspace(runs[0].folder.parent.parent) if runs else Workspace(".")
    return stage.compare([run.folder.name for run in runs], workspace, html=None if html is None else Path(html))


@public
def export(  # noqa: PLR0913 - all but two are keywords with a default
    run: TrainedRun,
    out: Path | str | None = None,
    *,
    format: str = "bundle",  # noqa: A002 - the option of the command
    histories: bool = True,
    tables: TableType = "fp32",
    verify: bool = True,
    force: bool = False,
    progress: Report = True,
) -> Path:
    """Write a run as one relocatable folder, by default a bundle for `load_bundle`, and return the folder.

    Args:
        run: A finished run.
        out: The folder to write; None for bundles/RUN in the workspace, with `-FORMAT` unless it is a bundle.
        format: bundle, onnx, torch or triton.
        histories: Include the user histories and seen items.
        tables: Type of the embedding tables' rows: fp32, fp16 or int8. The manifest has the quality lost.
        verify: Compare the scores of a sample of raw rows with those of the run.
        force: Replace an existing folder.
        progress: Draw a progress bar, or call a function with each event.

    Raises:
        ConfigError: The format or the type of tables is unknown, the folder exists, or the model does not fit the format.
        MissingExtraError: The extra of the format is not installed.
        MissingArtifactError: The run is not finished, or its prepared data is missing.
        DataError: A score of the bundle differs from that of the run.
    """
    from recsys_cli.stages import export as stage

    workspace = Workspace(run.folder.parent.parent)
    with reporting("export", progress) as emit:
        made = stage.export(
            run,
            workspace,
            kind=format,
            out=None if out is None else Path(out),
            histories=histories,
            tables=tables,
            verify=verify,
            force=force,
            emit=emit,
        )
    return made.folder
