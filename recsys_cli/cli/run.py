"""The command `recsys run`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from recsys_cli.cli import download, etl, evaluate, train
from recsys_cli.cli.params import Config, Force, Overrides, current_config, joined
from recsys_cli.cli.session import Draw, Session

if TYPE_CHECKING:
    from recsys_cli.config import RunConfig


def run(ctx: typer.Context, config: Config = None, overrides: Overrides = None, force: Force = False) -> None:
    """Run all stages in order; skip those up to date, and resume an interrupted training."""
    from recsys_cli.data import open_source

    session: Session = ctx.obj
    results: dict[str, Any] = {}

    def show(stage: str, result: dict[str, Any], draw: Draw) -> None:
        results[stage] = result
        if not session.as_json:
            session.report({**result, "next": None}, draw)  # the next stage follows at once

    with current_config(session, joined(config, overrides)) as settings:
        if not open_source(settings.dataset.name, settings.dataset.options).info.is_own:
            show("download", download.run_download(session, settings.dataset, force=force), download.draw)
        show("etl", etl.run_etl(session, settings, force=force), etl.draw)
    _require_held_out(session, settings)
    show("train", train.run_train(session, settings, resume=None, force=force), train.draw)
    if not session.is_first:
        return
    trained = session.workspace.run(results["train"]["run"])
    show("evaluate", evaluate.run_evaluate(session, trained, settings, force=force), evaluate.draw)
    if session.as_json:
        session.report(results, lambda *_: None)


def _require_held_out(session: Session, config: RunConfig) -> None:
    """Refuse data without rows to evaluate on, before the training."""
    with session.working("train"):
        from recsys_cli.evaluation.measure import choose_split
        from recsys_cli.stages.etl import prepared_data

        choose_split(prepared_data(config, session.workspace), config.evaluate)


def prepare(session: Session, config: RunConfig, *, from_file: Path | None = None) -> None:
    """Download and prepare the data of a config, unless both are up to date."""
    download.run_download(session, config.dataset, from_file=from_file, force=from_file is not None)
    etl.run_etl(session, config, force=False)
