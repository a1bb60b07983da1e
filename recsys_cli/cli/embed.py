"""The command `recsys embed`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recsys_cli.cli.params import Overwrite
from recsys_cli.cli.quantities import share
from recsys_cli.cli.session import Session
from recsys_cli.cli.tables import line

if TYPE_CHECKING:
    from rich.console import Console

_MODEL = "Local encoder: word vectors as text (GloVe, fastText), or model.onnx with tokenizer.json. Nothing is fetched."
_LINES = """\
dataset:
  tables:
    {table}: {{files: {output}}}
features:
  ops:
    - {{op: JoinExternal, table: {table}, on: {item}, columns: [vector]}}
    - {{op: ValueCount, columns: [vector]}}
model: {{name: sasrec, cold_items: [vector]}}  # also gru4rec, ials, two-tower and others; see recsys ls models NAME"""


def embed(
    ctx: typer.Context,
    items: Annotated[str, typer.Argument(metavar="ITEMS", help="Table with a row per item.", show_default=False)],
    model: Annotated[Path, typer.Option(metavar="FOLDER", help=_MODEL, show_default=False)],
    columns: Annotated[str, typer.Option(metavar="COLUMNS", help="Text columns, as a,b.", show_default="all")] = "",
    item: Annotated[str | None, typer.Option(metavar="COLUMN", help="Item id column.", show_default="guessed")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Parquet file to write.")] = None,
    force: Overwrite = False,
) -> None:
    """Encode the texts of items as vectors, to rank new items by."""
    session: Session = ctx.obj
    output = out or Path(Path(items).name.partition(".")[0] + ".vectors.parquet")
    with session.working("embed"):
        from recsys_cli.stages.embed import embed

        names = list(filter(None, columns.split(",")))
        made = embed(items, model, item=item, columns=names, output=output, force=force)
    table = re.sub(r"\W", "_", output.name.removesuffix(".parquet"))
    made |= {"output": str(output), "config": _LINES.format(table=table, output=output, item=made["item"])}
    session.report(made, _draw)


def _draw(to: Console, result: Mapping[str, Any]) -> None:
    counts = f"{result['items']:,} items, {result['without_text']:,} without text"
    if "words" in result:
        unknown = f"{result['unknown_words']:,} of {result['words']:,} distinct words"
        counts += f"; {unknown}, {share(result['unknown_share'])} of all words, have no vector"
    line(to, f"{result['dim']} numbers for {', '.join(result['columns'])} of {counts}")
    line(to, f"vectors: {result['output']}; add to the config:\n{result['config']}")
