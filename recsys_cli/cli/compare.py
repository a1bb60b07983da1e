"""`recsys compare` as a command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from recsys_cli.cli.session import Session
from recsys_cli.errors import ConfigError

Html = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Write a page that opens offline.", show_default=False, dir_okay=False),
]

Latex = Annotated[bool, typer.Option("--latex", help="Print the table for a paper (booktabs).")]


def in_one_form(session: Session, *, latex: bool) -> None:
    """Make sure that not two forms of the same answer are asked for.

    Raises:
        ConfigError: They are.
    """
    if latex and session.as_json:
        raise ConfigError("--latex and --json are two forms of the same answer", hint="give one of them")


def compare(
    ctx: typer.Context,
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN", help="Evaluated runs (a name, or the beginning or end of it).", show_default=False
        ),
    ],
    against: Annotated[
        str | None,
        typer.Option(
            "--against", metavar="RUN", help="Compare with this run instead of the first.", show_default=False
        ),
    ] = None,
    html: Html = None,
    latex: Latex = False,
) -> None:
    """Test whether runs are really different, on the same users and rows.

    Every difference gets a 95 % interval and a paired test, corrected for the number of tests; what is noise is called so.
    """
    from recsys_cli.cli.results import compare as shown

    session: Session = ctx.obj
    in_one_form(session, latex=latex)
    from recsys_cli.stages.compare import compare

    found = compare(runs, session.workspace, against=against, html=html)
    if latex:
        from recsys_cli.evaluation.compare.latex import paper_table

        typer.echo(paper_table(found))
        return
    session.answer(shown.result(found, html=html), shown.draw)
