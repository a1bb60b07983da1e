"""The commands download, etl, train, evaluate and run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recsys_cli.cli.completion import complete_dataset, complete_run, complete_run_or_config
from recsys_cli.cli.params import Config, Force, Overrides, current_config, is_config, joined, read_config
from recsys_cli.cli.session import Draw, Session
from recsys_cli.errors import ConfigError

if TYPE_CHECKING:
    from recsys_cli.config import DatasetConfig, EvaluateConfig, RunConfig
    from recsys_cli.workspace import TrainedRun


def download(
    ctx: typer.Context,
    dataset: Annotated[
        str,
        typer.Argument(
            metavar="DATASET",
            help="Name of a dataset (recsys ls datasets), or a config with a dataset.",
            show_default=False,
            autocompletion=complete_dataset,
        ),
    ],
    from_file: Annotated[
        Path | None,
        typer.Option("--from-file", metavar="PATH", help="Take this archive, file or folder instead of downloading."),
    ] = None,
    mirror: Annotated[
        str | None, typer.Option("--mirror", metavar="URL", help="Download from this mirror (or RECSYS_MIRROR).")
    ] = None,
    force: Force = False,
) -> None:
    """Download a dataset into the workspace."""
    from recsys_cli.cli.results import download as shown
    from recsys_cli.config import DatasetConfig

    session: Session = ctx.obj
    config = dataset if is_config(dataset) else None
    section = read_config(session, [config]).dataset if config else DatasetConfig(name=dataset)
    done = _download(session, section, config=config, mirror=mirror, from_file=from_file, force=force)
    session.report(done, shown.draw)


def etl(
    ctx: typer.Context,
    config: Config = None,
    overrides: Overrides = None,
    apply: Annotated[
        str | None,
        typer.Option(
            "--apply",
            metavar="RUN|DATA",
            help="Prepare new rows with the fitted ops of this run or prepared data; name the files instead of CONFIG.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Parquet file to write (with --apply).",
            show_default="NEW.prepared.parquet",
        ),
    ] = None,
    force: Force = False,
) -> None:
    """Prepare the data: split, encode, join.

    recsys etl --apply RUN_OR_DATA NEW.parquet prepares new rows: all rows, in order, in one parquet file that includes the joined
    columns. Labels, weights and the time may be missing, as may columns computed from them only.
    """
    from recsys_cli.cli.results import etl as shown

    session: Session = ctx.obj
    if apply is not None:
        _apply(session, apply, joined(config, overrides), output=output, force=force)
        return
    if output is not None:
        raise ConfigError("--output needs --apply", hint="prepared data is always written to the workspace")
    with current_config(session, joined(config, overrides)) as settings:
        result = _etl(session, settings, force=force)
    session.report(result, shown.draw)


def train(  # noqa: PLR0913, PLR0917 - one parameter per option
    ctx: typer.Context,
    config: Config = None,
    overrides: Overrides = None,
    epochs: Annotated[int | None, typer.Option("--epochs", metavar="N", help="Set train.epochs.")] = None,
    devices: Annotated[
        int | None, typer.Option("--devices", metavar="N", help="Set train.devices: number of processes, or GPUs.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume an interrupted run.")] = False,
    continued: Annotated[
        str | None,
        typer.Option(
            "--continue",
            metavar="RUN",
            help="Start from the weights of this run (warm start); sets train.continue_from.",
            show_default=False,
            autocompletion=complete_run,
        ),
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Print the expected memory, without a run.")] = False,
    force: Force = False,
) -> None:
    """Train the model on the prepared data."""
    from recsys_cli.cli.results import train as shown
    from recsys_cli.cli.runs import finished

    session: Session = ctx.obj
    options = {"train.epochs": epochs, "train.devices": devices}
    line = [*joined(config, overrides), *(f"{key}={value}" for key, value in options.items() if value is not None)]
    if continued is not None:
        line.append(f"train.continue_from={finished(session.workspace.run(continued)).folder.name}")
    if plan:
        _plan(session, read_config(session, line))
        return
    with current_config(session, line) as settings:
        result = _train(session, settings, resume=resume, force=force)
    session.report(result, shown.draw)


def evaluate(
    ctx: typer.Context,
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN|CONFIG",
            help="Run (name, its beginning or end, or its model) or config. Default: config of the last stage.",
            show_default=False,
            autocompletion=complete_run_or_config,
        ),
    ] = None,
    overrides: Overrides = None,
    force: Force = False,
) -> None:
    """Evaluate a trained model against baselines; write a report."""
    from recsys_cli.cli.results import evaluate as shown
    from recsys_cli.cli.runs import run_and_config

    session: Session = ctx.obj
    trained, config = run_and_config(session, joined(run, overrides))
    session.report(_evaluate(session, trained, config, force=force), shown.draw)


def run(ctx: typer.Context, config: Config = None, overrides: Overrides = None, force: Force = False) -> None:
    """Run all stages in order; skip those up to date, and resume an interrupted training."""
    from recsys_cli.cli import results as shown
    from recsys_cli.data import open_source

    session: Session = ctx.obj
    results: dict[str, Any] = {}

    def show(stage: str, result: dict[str, Any], draw: Draw) -> None:
        results[stage] = result
        if not session.as_json:
            session.report({**result, "next": None}, draw)  # the next stage follows at once

    with current_config(session, joined(config, overrides)) as settings:
        if not open_source(settings.dataset.name, settings.dataset.options).info.is_own:
            show("download", _download(session, settings.dataset, force=force), shown.download.draw)
        show("etl", _etl(session, settings, force=force), shown.etl.draw)
    _require_held_out(session, settings)
    show("train", _train(session, settings, resume=None, force=force), shown.train.draw)
    if not session.is_first:
        return
    trained = session.workspace.run(results["train"]["run"])
    show("evaluate", _evaluate(session, trained, settings.evaluate, force=force), shown.evaluate.draw)
    if session.as_json:
        session.report(results, lambda *_: None)


def _require_held_out(session: Session, config: RunConfig) -> None:
    """Refuse data without rows to evaluate on, before the training."""
    with session.working("train"):
        from recsys_cli.evaluation.measure import choose_split
        from recsys_cli.stages.etl import prepared_data

        choose_split(prepared_data(config, session.workspace), config.evaluate)


def prepare(session: Session, config: RunConfig, *, from_file: Path | None = None) -> None:
    """Download and prepare the data of a config, unless both are up to date."""
    _download(session, config.dataset, from_file=from_file, force=from_file is not None)
    _etl(session, config, force=False)


def _download(
    session: Session,
    dataset: DatasetConfig,
    *,
    config: str | None = None,
    mirror: str | None = None,
    from_file: Path | None = None,
    force: bool = False,
) -> dict[str, Any]:
    from recsys_cli.cli.results.download import result

    with session.working("download") as emit:
        from recsys_cli.stages.download import download

        made = download(dataset, session.workspace, mirror=mirror, from_file=from_file, force=force, emit=emit)
    return result(made, config=config)


def _etl(session: Session, config: RunConfig, *, force: bool) -> dict[str, Any]:
    from recsys_cli.cli.results.etl import result

    with session.working("etl") as emit:
        from recsys_cli.stages.etl import etl

        made = etl(config, session.workspace, force=force, emit=emit)
    return result(made)


def _apply(session: Session, name: str, arguments: list[str], *, output: Path | None, force: bool) -> None:
    from recsys_cli.cli.results import apply as shown

    overrides = [text for text in arguments if text.startswith("etl.") and "=" in text]
    files = [text for text in arguments if text not in overrides]
    with session.working("etl") as emit:
        from recsys_cli.stages.apply import apply

        made = apply(name, files, session.workspace, output=output, overrides=overrides, force=force, emit=emit)
    session.report(shown.result(made), shown.draw)


def _train(session: Session, config: RunConfig, *, resume: bool | None, force: bool) -> dict[str, Any]:
    from recsys_cli.cli.results.train import result

    with session.working("train") as emit:
        from recsys_cli.stages.train import train

        made = train(config, session.workspace, resume=resume, force=force, emit=emit)
    return result(made)


def _plan(session: Session, config: RunConfig) -> None:
    from recsys_cli.cli.results.plan import draw

    with session.working("train"):
        from recsys_cli.stages.plan import plan

        estimate = plan(config, session.workspace)
    session.answer(estimate, draw)


def _evaluate(session: Session, trained: TrainedRun, config: EvaluateConfig, *, force: bool) -> dict[str, Any]:
    from recsys_cli.cli.results.evaluate import result

    with session.working("evaluate") as emit:
        from recsys_cli.stages.evaluate import evaluate

        made = evaluate(trained, session.workspace, config=config, force=force, emit=emit)
    return result(made.artifact, up_to_date=made.up_to_date)
