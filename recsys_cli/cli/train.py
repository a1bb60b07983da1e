"""The command `recsys train`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recsys_cli.cli.completion import complete_run
from recsys_cli.cli.params import Config, Force, Overrides, current_config, joined, read_config
from recsys_cli.cli.quantities import amount, duration, figure, share, size
from recsys_cli.cli.session import Session
from recsys_cli.cli.tables import line, table

if TYPE_CHECKING:
    from rich.console import Console

    from recsys_cli.config import RunConfig
    from recsys_cli.stages import StageResult
    from recsys_cli.workspace import TrainedRun

_DEVICES = {"host": "host", "device": "GPU"}


def train(  # noqa: PLR0913, PLR0917 - one parameter per option
    ctx: typer.Context,
    config: Config = None,
    overrides: Overrides = None,
    epochs: Annotated[int | None, typer.Option(metavar="N", help="Set train.epochs.")] = None,
    devices: Annotated[
        int | None, typer.Option(metavar="N", help="Set train.devices: number of processes, or GPUs.")
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
    """Train the model on the prepared data; under torchrun, resume an unfinished run of the config."""
    from recsys_cli.training.member import started_by_torchrun
    from recsys_cli.workspace import finished

    session: Session = ctx.obj
    options = {"train.epochs": epochs, "train.devices": devices}
    line = [*joined(config, overrides), *(f"{key}={value}" for key, value in options.items() if value is not None)]
    if continued is not None:
        line.append(f"train.continue_from={finished(session.workspace.run(continued)).folder.name}")
    if plan:
        _plan(session, read_config(session, line))
        return
    with current_config(session, line) as settings:
        result = run_train(session, settings, resume=resume or (None if started_by_torchrun() else False), force=force)
    session.report(result, draw)


def run_train(session: Session, config: RunConfig, *, resume: bool | None, force: bool) -> dict[str, Any]:
    """Train a config, with progress; return what the manifest of the run says."""
    with session.working("train") as emit:
        from recsys_cli.stages.train import train

        made = train(config, session.workspace, resume=resume, force=force, emit=emit)
    return result(made)


def _plan(session: Session, config: RunConfig) -> None:
    with session.working("train"):
        from recsys_cli.stages.plan import plan

        estimate = plan(config, session.workspace)
    session.answer(estimate, draw_plan)


def result(made: StageResult[TrainedRun]) -> dict[str, Any]:
    """Gather what the manifest says."""
    run = made.artifact
    return {
        "run": run.folder.name,
        "up_to_date": made.up_to_date,
        "path": str(run.folder),
        **run.manifest,
        **({"candidates": [asdict(one) for one in made.candidates]} if made.candidates else {}),
        "next": "recsys evaluate",
    }


def draw(to: Console, result: Mapping[str, Any]) -> None:
    """Draw the candidates, or the epochs, and the run."""
    if candidates := result.get("candidates"):
        _draw_candidates(to, candidates)
    if result["up_to_date"]:
        line(to, f"training is up to date: {result['path']}")
    else:
        cells = [_epoch(epoch, is_best=epoch["epoch"] == result["best_epoch"]) for epoch in result["history"]]
        figures = [f"valid {name}" for name in result["history"][0]["valid"]]
        headings = ("epoch", "train loss", *figures, f"{result.get('unit', 'rows')}/s", "waiting", "time")
        if not candidates:
            table(to, "", headings, cells, text=0)
        kept = " (* best epoch, kept)" if len(result["history"]) > 1 else ""
        line(to, f"trained {result['parameters']:,} parameters on {result['device']}, {result['precision']}{kept}")
        for note in result.get("notes", ()):
            line(to, f"note: {note}")
        line(to, f"run: {result['path']}")


def _draw_candidates(to: Console, candidates: Sequence[Mapping[str, Any]]) -> None:
    best = candidates[0]
    cells = [(one["label"], figure(one["value"]), duration(one["seconds"]), one["run"]) for one in candidates]
    table(to, "candidates, the best by valid first", ("model", f"valid {best['metric']}", "time", "run"), cells)
    if best["label"].startswith("popularity"):
        line(to, f"note: no candidate ranks better than {best['label']} on valid", style="yellow")
    elif best["value"] is None:
        line(to, f"note: {best['metric']} cannot be measured on valid; {best['label']} is taken", style="yellow")


def _epoch(epoch: Mapping[str, Any], *, is_best: bool) -> tuple[str, ...]:
    seconds = epoch["seconds"] or 1e-9
    return (
        f"{'* ' if is_best else ''}{epoch['epoch']}",
        *map(figure, (epoch["train_loss"], *epoch["valid"].values())),
        amount(epoch["rows"] / seconds),
        share(epoch["waiting"] / seconds),
        duration(epoch["seconds"]),
    )


def draw_plan(to: Console, result: Mapping[str, Any]) -> None:
    """Draw the memory estimate and the free memory; of each candidate of `auto`."""
    if candidates := result.get("candidates"):
        for label, plan in candidates.items():
            line(to, label if plan else f"{label}: fitted at once, without training steps", style="bold")
            if plan:
                draw_plan(to, plan)
        return
    cells = [
        (
            each["name"],
            f"{each['rows']:,}",
            str(each["width"]),
            *(size(each[part]) for part in ("weights", "state", "gradient")),
        )
        for each in result["tables"]
    ]
    if cells:
        table(to, "", ("embedding table", "rows", "width", "weights", "optimizer state", "gradient"), cells)
    needs = [(need["what"], need["note"], _DEVICES[need["place"]], size(need["num_bytes"])) for need in result["needs"]]
    if needs:
        table(to, "", ("memory for", "", "device", "needed"), needs, text=3)
    several = f", {result['processes']} processes" if result["processes"] > 1 else ""
    line(to, f"{result['model']} on {result['device']}, {result['precision']}{several}; nothing was trained")
    if needs:
        line(to, "activations of a batch come on top of this")
    for place in result["places"]:
        text = f"{_DEVICES[place['place']]}: {size(place['needed'])} needed, {size(place['there'])} free"
        line(to, f"{text}: {'fits' if place['fits'] else 'does not fit'}", style="" if place["fits"] else "yellow")
