"""The commands recommend and score: answers of a run or a bundle."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recsys_cli.cli.completion import complete_run
from recsys_cli.cli.params import Overwrite
from recsys_cli.cli.quantities import amount, duration
from recsys_cli.cli.session import Session
from recsys_cli.cli.tables import line, table
from recsys_cli.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from recsys_cli.events import Emit
    from recsys_cli.serving.query import Query
    from recsys_cli.serving.recommender import Recommender
    from recsys_cli.stages.recommend import Written
    from recsys_cli.workspace import Bundle, TrainedRun


Source = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN|BUNDLE",
        help="Run (name, its beginning or end, or its model), or folder of a bundle. Default: the best run of the current data on "
        "valid.",
        show_default=False,
        autocompletion=complete_run,
    ),
]
History = Annotated[
    str | None,
    typer.Option(
        metavar="IDS|FILE",
        help="Item ids, oldest first, such as 1,2,3; or, with --out, a parquet or csv file of users' interactions.",
        show_default=False,
    ),
]
Where = Annotated[
    str | None,
    typer.Option(
        metavar="EXPRESSION", help='Filter over item features, such as "genres contains Comedy".', show_default=False
    ),
]
Candidates = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Ids of the only items to rank.", show_default=False)
]


def recommend(  # noqa: PLR0913, PLR0917 - one parameter per option
    ctx: typer.Context,
    source: Source = None,
    user: Annotated[str | None, typer.Option(metavar="ID", help="User id in the raw data.", show_default=False)] = None,
    history: History = None,
    similar_to: Annotated[
        str | None, typer.Option(metavar="ITEM", help="Nearest items of this id or title.", show_default=False)
    ] = None,
    k: Annotated[int, typer.Option(help="Number of items.", min=1)] = 10,
    where: Where = None,
    candidates: Candidates = None,
    exclude: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Ids of items to leave out.", show_default=False)
    ] = None,
    exclude_seen: Annotated[
        bool | None,
        typer.Option(
            "--exclude-seen/--include-seen",
            help="Leave out the items of the history. Default: unless evaluate.repeats.",
            show_default=False,
        ),
    ] = None,
    diversity: Annotated[
        float, typer.Option(metavar="D", help="Weight of diversity (MMR), 0 to 1.", min=0, max=1)
    ] = 0.0,
    explain: Annotated[bool, typer.Option("--explain", help="Add the reasons to the rows of --out.")] = False,
    everyone: Annotated[bool, typer.Option("--all", help="All users of train, into --out.")] = False,
    users: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Users with these ids, into --out.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="A .parquet, .csv or .jsonl file.", show_default=False),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Rank for --out on a cluster, as in etl.cluster.", show_default=False),
    ] = None,
    force: Overwrite = False,
) -> None:
    """Recommend items to a user, with titles and reasons; or to all users, into a file."""
    from recsys_cli.cli.runs import warn
    from recsys_cli.serving.query import Query

    session: Session = ctx.obj
    _check(out, user=user, similar_to=similar_to, many=everyone or users is not None, history=history, force=force)
    with session.working("recommend") as emit:
        from recsys_cli.stages import recommend as stage
        from recsys_cli.stages.cluster import open_cluster
        from recsys_cli.stages.recommend import RankedPart, recommend_histories, recommend_users

        found = find_source(session, source, emit)
        warn(emit, found)
        recommender = stage.open_recommender(found, session.workspace)
        query = Query(
            user, None, k=k, candidates=_ids(candidates, recommender), exclude=_ids(exclude, recommender) or (),
            exclude_seen=exclude_seen, where=where, diversity=diversity, explain=out is None or explain,
        )  # fmt: skip
        if out is not None and history is not None:
            made = recommend_histories(recommender, query, Path(history), out, emit=emit)
        elif out is not None:
            with open_cluster(cluster, session.workspace, emit) as opened:
                rank = partial(opened.map, RankedPart(found, session.workspace, query)) if opened else None
                made = recommend_users(recommender, query, out, users=users, rank=rank, emit=emit)
    if out is not None:
        session.report(written(made), draw_written)
    else:
        session.answer(_answer(recommender, query, history=history, similar_to=similar_to), draw)


def score(
    ctx: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            metavar="RUN|BUNDLE", help="Run, or folder of a bundle.", show_default=False, autocompletion=complete_run
        ),
    ],
    rows: Annotated[
        Path,
        typer.Argument(metavar="ROWS", help="File of rows, in the format of the interactions.", show_default=False),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="A .parquet, .csv or .jsonl file.")] = Path(
        "scores.parquet"
    ),
    force: Overwrite = False,
) -> None:
    """Score rows: one prediction per row, in their order. Labels and times may be missing.

    A score is the logit of a binary label, or the value of a numeric one; models without labels order items only.
    """
    session: Session = ctx.obj
    with session.working("score") as emit:
        from recsys_cli.stages.score import score

        made = score(find_source(session, source, emit), rows, out, session.workspace, force=force, emit=emit)
    session.report(vars(made), draw_scored)


def find_source(session: Session, name: str | None, emit: Emit) -> TrainedRun | Bundle:
    """Return the bundle in a folder, or the run with a name; without a name see `named_run`.

    Raises:
        MissingArtifactError: Neither exists.
    """
    from recsys_cli.cli.runs import named_run
    from recsys_cli.workspace import Bundle

    if name is not None and ((Path(name) / "weights.safetensors").exists() or (Path(name) / "vocab-index").is_dir()):
        return Bundle(Path(name))
    return named_run(session, name, emit)


def _answer(recommender: Recommender, query: Query, *, history: str | None, similar_to: str | None) -> dict[str, Any]:
    from recsys_cli.stages.recommend import recommend, similar

    if similar_to is not None:
        return similar(recommender, similar_to, k=query.k)
    if history is not None:
        from dataclasses import replace

        query = replace(query, history=[part.strip() for part in history.split(",") if part.strip()])
    return recommend(recommender, query)


def _ids(path: Path | None, recommender: Recommender) -> list[Any] | None:
    from recsys_cli.stages.tables import read_column

    return None if path is None else read_column(path, recommender.served.item.name, "item")


def _check(
    out: Path | None, *, user: str | None, similar_to: str | None, many: bool, history: str | None, force: bool
) -> None:
    """Check that the options name one thing to recommend to."""
    if out is not None:
        from recsys_cli.stages.tables import check_format

        check_format(out, force=force)
        if user is not None or similar_to is not None or not (many or history is not None):
            raise ConfigError("--out is for many users", hint="add --all, --users FILE or --history FILE")
        if history is not None and not Path(history).is_file():
            raise ConfigError(f"--history {history} is no file", hint="with --out, name a file of interactions")
        return
    if many:
        raise ConfigError("--all and --users need --out", hint="add --out recs.parquet")
    if user is None and similar_to is None and history is None:
        raise ConfigError(
            "nobody to recommend to", hint="add --user ID, --history 1,2,3, --similar-to ITEM, or --all --out FILE"
        )


_SOURCES = {
    "model": "by the model",
    "fold-in": "by the model, from the given history",
    "popularity": "the most popular items instead",
}


def draw(to: Console, result: Mapping[str, Any]) -> None:
    """Draw the reason for a fallback, recommendations with titles, scores and reasons, and the number of seen items left out."""
    items, has_titles = result["items"], any(one["title"] for one in result["items"])
    heads = ("rank", *(("title",) if has_titles else ()), "item", "because")
    rows = [
        (str(one["rank"]), *((one["title"] or "",) if has_titles else ()), str(one["item"]), ", ".join(one["because"]),
         f"{one['score']:.4f}")
        for one in items
    ]  # fmt: skip
    if "user" not in result:
        about = f"similar to {result['item']['title'] or result['item']['item']}"
    else:
        about = "for the given history" if result["user"] is None else f"for user {result['user']}"
    source = _SOURCES.get(result["source"])
    if result["note"]:
        line(to, result["note"], style="yellow")
    table(to, f"{about}, {result['model']}{f': {source}' if source else ''}", (*heads, "score"), rows, text=len(heads))
    if result["num_seen"]:
        items_are = "item is" if result["num_seen"] == 1 else "items are"
        line(to, f"{result['num_seen']:,} seen {items_are} left out", style="dim")


def written(made: Written) -> dict[str, Any]:
    """Return the result of a file of recommendations, with the speed."""
    speed = round(made.rows / made.seconds, 1) if made.seconds else None
    return {**vars(made), "seconds": round(made.seconds, 3), "rows_per_second": speed}


def draw_written(to: Console, result: Mapping[str, Any]) -> None:
    """Draw the number of users and rows, and the file."""
    speed = f", {amount(result['rows_per_second'])} rows/s" if result["rows_per_second"] else ""
    if result["without"]:
        line(to, f"{result['without']:,} users have no recommendations: all items are seen or filtered", style="yellow")
    if result["popular"]:
        line(to, f"{result['popular']:,} users have the most popular items: {result['why_popular']}", style="yellow")
    if result["skipped"]:
        line(to, f"{result['skipped']:,} interactions of the histories have items that are not in train: they are skipped",
             style="yellow")  # fmt: skip
    line(to, f"{result['rows']:,} recommendations for {result['users']:,} users in {duration(result['seconds'])}{speed}: "
         f"{result['output']}")  # fmt: skip


def draw_scored(to: Console, result: Mapping[str, Any]) -> None:
    """Draw the number of rows, and the file."""
    kind = "logits of a binary label, values of a numeric one"
    kind = kind if result["probabilistic"] else "they order items, and are no predictions"
    line(to, f"{result['rows']:,} scores ({kind}): {result['output']}")
