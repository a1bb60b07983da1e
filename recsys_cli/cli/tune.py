"""The command `recsys tune`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recsys_cli.cli.params import Config, Force, Overrides, current_config, joined
from recsys_cli.cli.quantities import duration, figure
from recsys_cli.cli.session import Session
from recsys_cli.cli.tables import line, table

if TYPE_CHECKING:
    from rich.console import Console

    from recsys_cli.stages import StageResult
    from recsys_cli.workspace import TunedStudy


def tune(
    ctx: typer.Context,
    config: Config = None,
    overrides: Overrides = None,
    trials: Annotated[
        int | None, typer.Option(metavar="N", help="Total number of trials; same as tune.trials=N.")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(metavar="N", help="Time limit of this call; same as tune.minutes=N.")
    ] = None,
    force: Force = False,
) -> None:
    """Search hyperparameters of the model and its training.

    The first trial has the config's own values. The tune section of the config defines the search space; without one it is the
    model's default. An interrupted search continues; raise --trials to extend a finished one.
    """
    session: Session = ctx.obj
    limits = {"trials": trials, "minutes": minutes}
    line = [*joined(config, overrides), *(f"tune.{key}={value}" for key, value in limits.items() if value is not None)]
    with current_config(session, line) as settings, session.working("tune") as emit:
        from recsys_cli.stages.tune import tune

        study = tune(settings, session.workspace, force=force, emit=emit)
    session.report(result(study), draw)


def result(made: StageResult[TunedStudy]) -> dict[str, Any]:
    """Gather what the manifest says."""
    from recsys_cli.tuning.trial import caveat

    study = made.artifact
    manifest = study.manifest
    return {
        "study": study.folder.name,
        "up_to_date": made.up_to_date,
        "path": str(study.folder),
        "report": str(study.report),
        **manifest,
        "caveat": caveat(manifest),
        "next": f"recsys train {study.best}" if manifest["best"] else None,
    }


def draw(to: Console, result: Mapping[str, Any]) -> None:
    """Draw the trials and the best values."""
    keys, metric = list(result["space"]), result["metric"]["name"]
    rows = [_row(entry, keys) for entry in result["ranking"]]
    headings = ("rank", "trial", metric, *keys, "epochs", "time", "state")
    table(to, "", headings, rows, text=0)
    for entry in result["ranking"]:
        if entry["state"] == "failed":
            line(to, f"trial {entry['trial']} failed: {entry['message']}")
    counts = result["trials"]
    ended = sum(counts[state] for state in ("finished", "pruned", "failed"))
    if result["up_to_date"]:
        line(to, f"tuning is up to date: {ended} of {counts['wanted']} trials{_more(result)}")
    best = result["best"]
    if best:
        line(to, f"best {metric}: {figure(best['value'])}, trial {best['trial']}: {best['overrides']}")
        line(to, str(result["caveat"]))
    line(to, f"page: {result['report']}")


def _more(result: Mapping[str, Any]) -> str:
    is_exhausted = (result["combinations"] or math.inf) <= result["trials"]["wanted"]
    return ", all combinations of the search space" if is_exhausted else "; --trials N adds more"


def _row(entry: Mapping[str, Any], keys: list[str]) -> tuple[str, ...]:
    return (
        str(entry["rank"] or ""),
        str(entry["trial"]),
        figure(entry["value"]),
        *(_short(entry["changes"].get(key, "")) for key in keys),
        str(entry["epochs"]),
        "" if entry["seconds"] is None else duration(entry["seconds"]),
        entry["state"],
    )


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
