"""The commands validate and config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from recsys_cli.cli.params import Config, Overrides, config_path, joined, read_config, split_arguments
from recsys_cli.cli.quantities import size
from recsys_cli.cli.session import Session
from recsys_cli.cli.tables import facts, line, notes, table

if TYPE_CHECKING:
    from rich.console import Console


def validate(ctx: typer.Context, config: Config = None, overrides: Overrides = None) -> None:
    """Validate a config, against the first rows of its files if they are there, and list all problems."""
    session: Session = ctx.obj
    arguments = joined(config, overrides)
    settings = read_config(session, arguments)
    path = config_path(session, split_arguments(arguments)[0])
    from recsys_cli.packages import leave_out_pandas
    from recsys_cli.stages.validate import validate

    leave_out_pandas()
    checked = validate(settings, session.workspace)
    result = {
        "config": str(path),
        "valid": True,
        "dataset": settings.dataset.name,
        "model": settings.model.name,
        "data": None if checked is None else asdict(checked),
    }
    session.report(result, _draw_validity)


def _draw_validity(to: Console, result: Mapping[str, Any]) -> None:
    if (data := result["data"]) is not None:
        cells = [(name, kind, f"{data['nulls'].get(name, 0):.1%}") for name, kind in data["columns"].items()]
        title = f"first {data['sampled']:,} of about {data['rows']:,} rows"
        table(to, title, ("column", "type", "missing"), cells, text=2)
        matched = ", ".join(f"{name} for {share:.1%} of the rows" for name, share in data["matched"].items())
        facts(to, [("joined", matched), ("memory", f"at most {size(data['memory'])} for the preparation")])
        notes(to, data["notes"])
    line(to, f"{result['config']} is valid")


def config(ctx: typer.Context, config: Config = None, overrides: Overrides = None) -> None:
    """Print a config with overrides and all defaults."""
    session: Session = ctx.obj
    settings = read_config(session, joined(config, overrides))
    from recsys_cli.config import DatasetConfig
    from recsys_cli.config.load import dump_resolved
    from recsys_cli.data import options_of

    dataset = settings.dataset
    if (options := options_of(dataset.name)) is not None:
        spelled_out = DatasetConfig.model_validate({**options.spelled_out(dataset.options), "name": dataset.name})
        settings = settings.model_copy(update={"dataset": spelled_out})
    if session.as_json:
        session.answer(settings.model_dump(mode="json"), lambda *_: None)
    else:
        typer.echo(dump_resolved(settings), nl=False)
