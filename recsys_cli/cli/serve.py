"""The commands `recsys serve` and `recsys feedback`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recsys_cli.cli.session import Session
from recsys_cli.cli.tables import line
from recsys_cli.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console


class FsyncPolicy(StrEnum):
    """Flushes of the feedback log."""

    ALWAYS = "always"
    INTERVAL = "interval"
    NEVER = "never"


FeedbackLog = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Folder of the feedback log.", show_default="feedback in the workspace"),
]
PositiveAbove = Annotated[
    float | None,
    typer.Option(metavar="LABEL", help="Feedback labels above it, and likes, are positives.", show_default="0"),
]


def serve(  # noqa: PLR0913, PLR0917 - one parameter per option
    ctx: typer.Context,
    bundles: Annotated[
        list[str],
        typer.Argument(
            metavar="BUNDLE",
            help="Folders of recsys export or publish; NAME=FOLDER gives a name. Links are followed.",
            show_default=False,
        ),
    ],
    share: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=SHARE", help="Share of the users, such as a=0.9,b=0.1.", show_default="equal ones"),
    ] = None,
    host: Annotated[str, typer.Option(help="Address; others than this machine's need a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 for a free one.", min=0, max=65535)] = 8000,
    workers: Annotated[int, typer.Option(help="Processes; they share memory-mapped tables.", min=1, max=256)] = 1,
    feedback: FeedbackLog = None,
    fsync: Annotated[
        FsyncPolicy, typer.Option(metavar="always|interval|never", help="Flush of feedback before its answer.")
    ] = FsyncPolicy.INTERVAL,
    positive_above: PositiveAbove = None,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File with a bearer token.", show_default="RECSYS_TOKEN")
    ] = None,
    cors: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN", help="Site whose pages may ask, such as https://shop.example.", show_default=False
        ),
    ] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Allow other machines without a token.")] = False,
    batch_delay: Annotated[float, typer.Option(metavar="MS", help="Longest wait for a batch.", min=0, max=1000)] = 1.0,
    queue: Annotated[int, typer.Option(help="Waiting requests per bundle; then 429.", min=1)] = 512,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="Time of a request; then 504.", min=0.001)] = 10.0,
) -> None:
    """Serve bundles over HTTP: recommendations, scores, feedback, and a page."""
    from recsys_cli.stages import serve as stage

    session: Session = ctx.obj
    if session.is_remote and feedback is None:
        raise ConfigError("the feedback log needs a folder on a disk", hint="recsys serve --feedback DIR BUNDLE")
    stage.check_extra()
    from recsys_cli.cli.runs import warn
    from recsys_cli.serving.http.settings import Batching, Limits, Settings
    from recsys_cli.workspace import Bundle

    folders = stage.named_bundles(bundles)
    settings = Settings(
        bundles=folders,
        shares=stage.shares_of(share or [], folders),
        feedback=(feedback or session.root / "feedback").absolute(),
        fsync=fsync.value,
        positive_above=positive_above,
        host=host,
        port=port,
        workers=workers,
        token=stage.read_token(token_file),
        cors=stage.origins_of(cors or []),
        limits=Limits(seconds=timeout),
        batching=Batching(delay=batch_delay / 1e3, queue=queue),
    )
    with session.working("serve") as emit:
        for bundle in map(Bundle, folders.values()):
            if bundle.exists:
                warn(emit, bundle)
    stage.serve(settings, lambda url: session.report({"url": url, "bundles": list(folders)}, _draw), insecure=insecure)


def feedback(
    ctx: typer.Context,
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="DIR", help="Feedback folder.", show_default="feedback in the workspace"),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Config whose interactions the table is like.", show_default="that of the last stage"
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="CSV with these columns of user, item, label, time and event; empty ones are left out.",
            show_default="those of the config",
        ),
    ] = None,
    like: Annotated[
        str | None,
        typer.Option(
            metavar="VALUE",
            help="Label of likes, such as 5 for ratings; or their event, such as view.",
            show_default=False,
        ),
    ] = None,
    time_unit: Annotated[
        str | None,
        typer.Option(
            metavar="s|ms|us|ns|iso|FORMAT",
            help="Unit of the times since 1970, or format, such as '%d.%m.%Y %H:%M'.",
            show_default="that of the config, or s",
        ),
    ] = None,
) -> None:
    """Write the feedback as a table for recsys etl, and drop deleted events from the log."""
    from recsys_cli.serving.feedback.table import TableForm, compact

    session: Session = ctx.obj
    if columns is not None:
        form = TableForm(tuple(columns.split(",")), like, time_unit or "s")
    elif config is not None or session.workspace.current.is_file():
        from recsys_cli.cli.params import read_config
        from recsys_cli.stages.serve import table_form

        read = read_config(session, [config] if config is not None else [])
        form = table_form(read, session.workspace, like=like, time_unit=time_unit)
    else:
        form = TableForm(like=like, time_unit=time_unit or "s")
    done = compact(folder or session.root / "feedback", form)
    result = {**asdict(done), "table": str(done.table), "empty": list(form.empty)}
    session.report(result, _draw_compacted)


def _draw(console: Console, result: Mapping[str, Any]) -> None:
    line(console, f"{result['url']} serves {', '.join(result['bundles'])}")


def _draw_compacted(console: Console, result: Mapping[str, Any]) -> None:
    removed = result["removed"]
    log = "a server writes the log: its deleted events stay until its next start"
    if removed is not None:
        log = f"{removed:,} outdated events removed from the log"
    damaged = f", {result['damaged']:,} damaged lines skipped" if result["damaged"] else ""
    disliked = f"; {result['disliked']:,} with a label of 0 or less left out" if result["disliked"] else ""
    line(console, f"{result['table']}: {result['rows']:,} rows{disliked}; {log}{damaged}")
    for one in result["empty"]:
        line(console, f"feedback has no {one}; fill it, or recsys etl may drop the {result['rows']:,} rows")
