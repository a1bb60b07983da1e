"""The command `recsys auto`."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recsys_cli.cli import shipped
from recsys_cli.cli.download import run_download
from recsys_cli.cli.new import draw_understanding, understood, write_config
from recsys_cli.cli.params import current_config, is_config
from recsys_cli.cli.quantities import duration, figure
from recsys_cli.cli.session import Session
from recsys_cli.cli.tables import line, table
from recsys_cli.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from recsys_cli.config import RunConfig
    from recsys_cli.stages.race import RaceResult


def auto(
    ctx: typer.Context,
    tables: Annotated[
        list[str],
        typer.Argument(
            metavar="TABLE", help="Interactions, and tables of users and items if any; or a config.", show_default=False
        ),
    ],
    minutes: Annotated[
        float, typer.Option(min=1, metavar="N", help="Wall-clock time of all, also over several calls.")
    ] = 30.0,
    metric: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Metric of the race.", show_default="ndcg@10; auc or rmse of labels"),
    ] = None,
    memory: Annotated[float | None, typer.Option(metavar="GB", min=0.5, help="Most memory of the process.")] = None,
    latency: Annotated[
        float | None, typer.Option(metavar="MS", min=0.1, help="Most milliseconds of 95 in 100 requests, here.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Config to write.", show_default="TABLE.auto.yaml"),
    ] = None,
) -> None:
    """Find a good model within some minutes, and train it on all rows.

    Models from popularity to transformers race on valid: there is one to serve within the first minute, better ones may follow. The
    winner is tested on rows that chose nothing, and written as a config with the reasons. The same call goes on after an
    interruption; more minutes continue a finished race.
    """
    started = time.monotonic()
    session: Session = ctx.obj
    from recsys_cli.data import open_source

    config, source, again = _config(tables, session)
    chosen = _metric(config, metric)
    path = output or Path(f"{source.partition('.')[0]}.auto.yaml")
    _check(path, chosen)
    if not open_source(config.dataset.name, config.dataset.options).info.is_own:
        run_download(session, config.dataset)
    with session.working("auto") as emit:
        from recsys_cli.stages.race_result import Journal, RaceOptions
        from recsys_cli.workspace import write_text

        budget, write = None if memory is None else int(1_024 * memory), partial(write_text, path)
        options = RaceOptions(minutes=minutes, metric=chosen, memory_mib=budget, latency_ms=latency)
        journal = Journal.open(config, session.workspace, options)
        found = journal.finished(minutes, session.workspace)
        if found is not None:
            write(journal.config)
        else:
            from recsys_cli.stages.race import race  # loads torch
            from recsys_cli.stages.timed import Clock

            clock = Clock(60 * minutes, start=started)
            found = race(config, session.workspace, options, clock=clock, write=write, emit=emit, again=again)
    if found.on_all_rows:
        with current_config(session, [str(path)]):
            pass  # it is that of later commands
    session.report(_result(found, path), _draw)


def _config(tables: list[str], session: Session) -> tuple[RunConfig, str, str]:
    """Return the given config, or that of `recsys init` for the tables, the name of its source, and a command to change it."""
    from recsys_cli.config import load
    from recsys_cli.detect import understand
    from recsys_cli.detect.understanding import problems_error

    if is_config(tables[0]) and Path(tables[0]).suffix in {".yaml", ".yml"}:
        path = shipped.resolve(tables[0])
        return load(path, tables[1:]), path.name, f"recsys auto {shlex.join(tables)}"
    found = understand(tables, dict.fromkeys(("user", "item", "rating", "label", "timestamp")), None)
    if found.questions:
        init = f"recsys init {shlex.join(tables)} "
        problems = [question.problem for question in found.questions]
        error = problems_error(found.interactions, problems, command=init)
        roles = " ".join(f"--{question.role} COLUMN" for question in found.questions if question.role != "label")
        rank = f"; to rank items: {init}{roles}" if roles else ""
        raise ConfigError(error.message, hint=f"{error.hint}{rank}; then recsys auto {found.config_name}")
    with TemporaryDirectory(prefix="recsys-") as folder:
        path = Path(folder) / found.config_name
        notes = [*found.notes, *write_config(found, path, session)]
        if not session.as_json:
            session.report(
                {**understood(found, path), "model": "a race", "notes": notes, "next": None}, draw_understanding
            )
        own = shlex.quote(found.config_name)
        return load(path), found.config_name, f"recsys init {shlex.join(tables)}, then recsys auto {own}"


def _metric(config: RunConfig, given: str | None) -> str:
    """Return the metric of the task: of the order of items, of labels, or of numbers.

    Raises:
        ConfigError: The given one is of the other task.
    """
    from recsys_cli.metrics.named import REGRESSION, CutOff, check_reported, find_metric
    from recsys_cli.registry import AUTO, RANK, find_model

    ranks = config.model.name == AUTO or find_model(config.model.name).task == RANK
    if given is None:
        return "ndcg@10" if ranks else "rmse" if config.train.monitor == REGRESSION.default.name else "auc"
    check_reported(given)
    if isinstance(find_metric(given), CutOff) != ranks:
        task = "to rank items" if ranks else "to predict a label"
        raise ConfigError(
            f"--metric {given} does not fit the task of this table, {task}",
            hint=f"a metric such as {'ndcg@10' if ranks else 'auc'}, or another task: recsys init TABLE --task "
            f"{'label' if ranks else 'rank'}, then recsys auto CONFIG",
        )
    return given


def _check(path: Path, metric: str) -> None:
    """Refuse a path that cannot be written, and a file other than the config of a race by the same metric."""
    from recsys_cli.stages.winner import head
    from recsys_cli.workspace import check_output

    check_output(path)
    if path.parent.is_dir() and not os.access(path.parent, os.W_OK):
        raise ConfigError(f"{path.parent} is not writable", hint="name another file with --out")
    if path.exists() and not path.read_text(encoding="utf-8", errors="replace").startswith(head(metric)):
        raise ConfigError(
            f"{path} exists and is not of recsys auto by {metric}",
            hint=f"choose another file with --out, such as --out {path.stem}.{metric}.yaml",
        )


def _result(found: RaceResult, path: Path) -> dict[str, Any]:
    values = found.model_dump(mode="json")
    return {**values, "config": str(path), "next": f"recsys export {found.run} --out bundle, then recsys serve bundle"}


def _draw(to: Console, result: Mapping[str, Any]) -> None:
    options = result["options"]
    metric = options["metric"]
    tested = {row["label"]: row for row in result["board"]}
    rows = [
        (
            one["label"], figure(one["value"]), *_tested(tested.pop(one["label"], None)),
            duration(one["seconds"]), one["note"] or one["why"],
        )
        for one in result["entrants"]
    ]  # fmt: skip
    rows += [(f"{label} (baseline)", "", *_tested(row), "", "") for label, row in tested.items()]
    table(to, f"by {metric}", ("model", "valid", "test", "95 % interval", "time", "why"), rows, text=1)
    line(to, result["verdict"])
    on = "all rows" if result["on_all_rows"] else "train alone: the time was over before a training on all rows"
    line(to, f"{result['winner']} is trained on {on}: {result['run']}")
    line(
        to,
        f"took {duration(result['seconds'])} of {options['minutes']:g} min; config with the reasons: {result['config']}",
    )


def _tested(row: Mapping[str, Any] | None) -> tuple[str, str]:
    score = None if row is None else next(iter(row["scores"].values()))
    if score is None or score["value"] is None:
        return "", ""
    interval = "" if score["low"] is None else f"[{score['low']:.4f}, {score['high']:.4f}]"
    return figure(score["value"]), interval
