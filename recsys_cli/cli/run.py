"""The stages as commands: read the line, run the stage, show what it made."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recsys_cli.cli.params import Config, Force, Overrides, is_config, joined, read_config, settled
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
            help="Name in the catalog (recsys ls datasets), or a config whose dataset is meant.",
            show_default=False,
        ),
    ],
    from_file: Annotated[
        Path | None, typer.Option("--from-file", metavar="ZIP", help="Unpack this archive instead of downloading.")
    ] = None,
    mirror: Annotated[
        str | None,
        typer.Option("--mirror", metavar="URL", help="Download from here instead of the publisher (or RECSYS_MIRROR)."),
    ] = None,
    force: Force = False,
) -> None:
    """Get a dataset of the catalog into the workspace."""
    from recsys_cli.cli.results import download as shown
    from recsys_cli.config import DatasetConfig

    session: Session = ctx.obj
    wanted = read_config(session, [dataset]).dataset if is_config(dataset) else DatasetConfig(name=dataset)
    session.report(_download(session, wanted, mirror=mirror, from_file=from_file, force=force), shown.draw)


def etl(
    ctx: typer.Context,
    config: Config = None,
    overrides: Overrides = None,
    apply: Annotated[
        str | None,
        typer.Option(
            "--apply",
            metavar="RUN|DATA",
            help="Prepare new rows instead, with what this run or prepared data has learnt; their files come in place of CONFIG.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="With --apply: parquet file to write.",
            show_default="NEW.prepared.parquet",
        ),
    ] = None,
    force: Force = False,
) -> None:
    """Prepare the data: split, encode, join.

    recsys etl --apply RUN_OR_DATA NEW.parquet prepares new rows: every row, in its order, in one parquet file with all joined
    columns in it. Labels, weights, the time, and columns that only they are made of, may be missing.
    """
    from recsys_cli.cli.results import etl as shown

    session: Session = ctx.obj
    if apply is not None:
        _apply(session, apply, joined(config, overrides), output=output, force=force)
        return
    if output is not None:
        raise ConfigError("--output goes with --apply", hint="prepared data has its place in the workspace")
    with settled(session, joined(config, overrides)) as wanted:
        result = _etl(session, wanted, force=force)
    session.report(result, shown.draw)


def train(  # noqa: PLR0913, PLR0917 - one for each option
    ctx: typer.Context,
    config: Config = None,
    overrides: Overrides = None,
    epochs: Annotated[int | None, typer.Option("--epochs", metavar="N", help="The same as train.epochs=N.")] = None,
    devices: Annotated[
        int | None,
        typer.Option(
            "--devices", metavar="N", help="Processes (on GPUs: GPUs) that train together; sets train.devices."
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run that was interrupted.")] = False,
    continued: Annotated[
        str | None,
        typer.Option(
            "--continue",
            metavar="RUN",
            help="Begin with what this run has learnt, on data that may have grown; sets train.continue_from.",
            show_default=False,
        ),
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Print the memory that training needs and what is free; train nothing.")
    ] = False,
    profile: Annotated[
        bool, typer.Option("--profile", help="Train a few dozen steps and print where their time goes; keep no run.")
    ] = False,
    force: Force = False,
) -> None:
    """Train the model on the prepared data."""
    from recsys_cli.cli.results import train as shown
    from recsys_cli.cli.runs import finished

    session: Session = ctx.obj
    given = {"train.epochs": epochs, "train.devices": devices}
    line = [*joined(config, overrides), *(f"{key}={value}" for key, value in given.items() if value is not None)]
    if continued is not None:
        line.append(f"train.continue_from={finished(session.workspace.run(continued)).folder.name}")
    if plan and profile:
        raise ConfigError("--plan trains nothing that --profile could look at", hint="give one of them")
    if plan or profile:
        (_plan if plan else _profile)(session, read_config(session, line))
        return
    with settled(session, line) as wanted:
        result = _train(session, wanted, resume=resume, force=force)
    session.report(result, shown.draw)


def evaluate(
    ctx: typer.Context,
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN|CONFIG",
            help="Run (its name, or the beginning or end of it) or config; left out: the config of the last stage.",
            show_default=False,
        ),
    ] = None,
    overrides: Overrides = None,
    force: Force = False,
) -> None:
    """Measure a trained model beside baselines; write a report."""
    from recsys_cli.cli.results import evaluate as shown
    from recsys_cli.cli.runs import run_and_config

    session: Session = ctx.obj
    trained, config = run_and_config(session, joined(run, overrides))
    session.report(_evaluate(session, trained, config, force=force), shown.draw)


def run(ctx: typer.Context, config: Config = None, overrides: Overrides = None, force: Force = False) -> None:
    """Do everything in order, skipping what is up to date."""
    from recsys_cli.cli import results as shown
    from recsys_cli.data import open_source

    session: Session = ctx.obj
    results: dict[str, Any] = {}

    def show(stage: str, result: dict[str, Any], draw: Draw) -> None:
        results[stage] = result
        if not session.as_json:
            session.report({**result, "next": None}, draw)  # what comes next comes by itself

    with settled(session, joined(config, overrides)) as wanted:
        if not open_source(wanted.dataset.name, wanted.dataset.options).info.is_own:
            show("download", _download(session, wanted.dataset, force=force), shown.download.draw)
        show("etl", _etl(session, wanted, force=force), shown.etl.draw)
    show("train", _train(session, wanted, resume=False, force=force), shown.train.draw)
    if not session.is_first:
        return
    trained = session.workspace.run(results["train"]["run"])
    show("evaluate", _evaluate(session, trained, wanted.evaluate, force=force), shown.evaluate.draw)
    if session.as_json:
        session.report(results, lambda *_: None)


def _download(
    session: Session,
    dataset: DatasetConfig,
    *,
    mirror: str | None = None,
    from_file: Path | None = None,
    force: bool = False,
) -> dict[str, Any]:
    from recsys_cli.cli.results.download import result

    with session.working("download") as emit:
        from recsys_cli.stages.download import download

        made = download(dataset, session.workspace, mirror=mirror, from_file=from_file, force=force, emit=emit)
    return result(made)


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


def _train(session: Session, config: RunConfig, *, resume: bool, force: bool) -> dict[str, Any]:
    from recsys_cli.cli.results.train import result

    with session.working("train") as emit:
        from recsys_cli.stages.train import train

        made = train(config, session.workspace, resume=resume, force=force, emit=emit)
    return result(made)


def _plan(session: Session, config: RunConfig) -> None:
    from recsys_cli.cli.results.plan import draw

    with session.working("train"):
        from recsys_cli.stages.plan import plan

        found = plan(config, session.workspace)
    session.answer(found, draw)


def _profile(session: Session, config: RunConfig) -> None:
    from recsys_cli.cli.results.profile import draw

    with session.working("train") as emit:
        from recsys_cli.stages.profile import profile

        found = profile(config, session.workspace, emit=emit)
    session.answer(found, draw)


def _evaluate(session: Session, trained: TrainedRun, config: EvaluateConfig, *, force: bool) -> dict[str, Any]:
    from recsys_cli.cli.results.evaluate import result

    with session.working("evaluate") as emit:
        from recsys_cli.stages.evaluate import evaluate

        made = evaluate(trained, session.workspace, config=config, force=force, emit=emit)
    return result(made.artifact, up_to_date=made.up_to_date)
