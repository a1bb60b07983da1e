"""Tables for people: drawn from the same plain results that --json prints."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from recsys_cli.cli.escape import escaped

if TYPE_CHECKING:
    from rich.console import Console

Justify = Literal["left", "right"]


def console() -> Console:
    """Give the console for results: as wide as it needs where stdout is no terminal, for nobody sees a broken line there."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else 200)


def table(to: Console, title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, text: int = 1) -> None:
    """Draw a table.

    Args:
        to: Where.
        title: Written above it; may be empty.
        columns: Headings.
        rows: Cells, already as text.
        text: How many columns hold text, from the left; the others hold numbers and stand to the right.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    cells = [list(row) for row in rows]
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for position, heading in enumerate(columns):
        widest = max((len(line) for row in cells for line in row[position].split("\n")), default=0)
        # Headings and text may wrap in a narrow terminal, a number may not: a broken one reads as another.
        fixed = min(widest, 12) if position < text else widest
        side: Justify = "left" if position < text else "right"
        drawn.add_column(Text(escaped(heading)), justify=side, min_width=fixed, overflow="fold")
    for row in cells:
        drawn.add_row(*(Text(escaped(cell)) for cell in row))
    if not drawn.row_count:
        return
    if title:
        to.print(Text(escaped(title), style="bold"))
    to.print(drawn)
    to.print()


def line(to: Console, text: str, *, style: str = "", indent: int = 0) -> None:
    """Write a sentence, as it is: a bracket in a path is no markup."""
    from rich.padding import Padding
    from rich.text import Text

    if to.is_terminal:
        to.print(
            Padding(Text(escaped(text), style=style), (0, 0, 0, indent)) if indent else Text(escaped(text), style=style)
        )
    else:
        to.print(Text(" " * indent + escaped(text), style=style), soft_wrap=True)


def facts(to: Console, pairs: Iterable[tuple[str, str]]) -> None:
    """Write names and values, aligned; empty values are left out."""
    from rich.table import Table
    from rich.text import Text

    drawn = Table.grid(padding=(0, 2))
    drawn.add_column(no_wrap=True)
    drawn.add_column(overflow="fold")
    for name, value in pairs:
        if value:
            drawn.add_row(Text(escaped(name), style="bold"), Text(escaped(value)))
    to.print(drawn)
