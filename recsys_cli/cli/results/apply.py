"""Result of `recsys etl --apply`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from recsys_cli.cli.quantities import share
from recsys_cli.cli.tables import line, table

if TYPE_CHECKING:
    from rich.console import Console

    from recsys_cli.etl.new_rows import Applied


def result(made: Applied) -> dict[str, Any]:
    """Return the result as plain values."""
    return {
        "output": str(made.output),
        "rows": made.rows,
        "columns": {
            column.name: column.model_dump(mode="json", exclude_defaults=True) for column in made.schema.columns
        },
        "left_out": {name: list(raw) for name, raw in made.left_out.items()},
        "missing": {name: dict(counts) for name, counts in made.missing.items()},
        "engine": made.engine,
    }


def draw(to: Console, result: Mapping[str, Any]) -> None:
    """Draw missing values, omitted columns and the output."""
    cells = [
        (name, share(counts["null"] / counts["values"]), share(counts.get("unseen", 0) / counts["values"]))
        for name, counts in result["missing"].items()
        if counts["values"] and "cardinality" in result["columns"][name]
    ]
    table(to, "", ("column", "null", "unseen"), cells)
    for name, raw in result["left_out"].items():
        line(to, f"{name} is omitted: the new rows have no {', '.join(raw)}", style="yellow")
    line(to, f"{result['rows']:,} rows prepared with {result['engine']}: {result['output']}")
