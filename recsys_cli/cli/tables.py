"""Terminal tables, drawn from the plain results of --json."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Control characters except tab and newline, and bidirectional marks."""


def escaped(text: str) -> str:
    r"""Replace control characters of untrusted text by their escape sequences, such as `\x1b`."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def console() -> Console:
    """Return the console for results; 200 columns wide without a terminal."""
    from rich.console import Console

    class Raising(Console):
        """Rich itself leaves with 1 where the reader of a pipe has gone."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return Raising(highlight=False, width=None if sys.stdout.isatty() else 200)


def table(to: Console, title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, text: int = 1) -> None:
    """Draw a table; the first `text` columns are left-aligned, the others numeric."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    cells = [list(row) for row in rows]
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for position, heading in enumerate(columns):
        widest = max((len(line) for row in cells for line in row[position].split("\n")), default=0)
        # Headings and text may wrap in a narrow terminal; a wrapped number would be misread.
        is_text = position < text
        fixed, head = min(widest, 12) if is_text else widest, Text(escaped(heading))
        drawn.add_column(head, justify="left" if is_text else "right", min_width=fixed, overflow="fold")
    for row in cells:
        drawn.add_row(*(Text(escaped(cell)) for cell in row))
    if not drawn.row_count:
        return
    if title:
        to.print(Text(escaped(title), style="bold"))
    to.print(drawn)
    to.print()


def line(to: Console, text: str, *, style: str = "", indent: int = 0) -> None:
    """Print a line without markup."""
    from rich.padding import Padding
    from rich.text import Text

    if to.is_terminal:
        to.print(
            Padding(Text(escaped(text), style=style), (0, 0, 0, indent)) if indent else Text(escaped(text), style=style)
        )
    else:
        to.print(Text(" " * indent + escaped(text), style=style), soft_wrap=True)


def notes(to: Console, texts: Iterable[str]) -> None:
    """Print one line per note."""
    for text in texts:
        line(to, f"note: {text}", style="yellow")


def facts(to: Console, pairs: Iterable[tuple[str, str]]) -> None:
    """Print names and values, aligned, without empty values."""
    from rich.table import Table
    from rich.text import Text

    drawn = Table.grid(padding=(0, 2))
    drawn.add_column(no_wrap=True)
    drawn.add_column(overflow="fold")
    for name, value in pairs:
        if value:
            drawn.add_row(Text(escaped(name), style="bold"), Text(escaped(value)))
    to.print(drawn)
