"""Finds the run of a command line."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from recsys_cli.cli.params import config_path, is_config, read_config, split_arguments
from recsys_cli.cli.session import Session
from recsys_cli.errors import ConfigError, DataError, RecsysError
from recsys_cli.events import Emit, Message

if TYPE_CHECKING:
    from recsys_cli.config import RunConfig
    from recsys_cli.workspace import Bundle, TrainedRun, Workspace


def run_and_config(session: Session, arguments: Sequence[str]) -> tuple[TrainedRun, RunConfig]:
    """Return the run to evaluate, by name or config, and its config with the overrides."""
    from recsys_cli.config import load
    from recsys_cli.workspace import finished

    given, overrides = split_arguments(arguments)
    if given is None or is_config(given):
        config = read_config(session, arguments)
        return find_run(config, session.workspace), config
    run = finished(session.workspace.run(given))
    run.verify_config()
    others = [text for text in overrides if not text.startswith(("evaluate.", "recommend."))]
    if others:
        raise ConfigError(
            f"{', '.join(others)}: a finished run only accepts overrides of evaluate.KEY and recommend.KEY",
            hint=f"train another run: recsys train {run.config} {' '.join(others)}",
        )
    return run, load(run.config, overrides)


def named_run(session: Session, name: str | None, emit: Emit) -> TrainedRun:
    """Return the finished run with a name; without a name the best run of the current data on valid, with a message.

    Raises:
        MissingArtifactError: There is no such run, or it is not finished.
    """
    if name is not None:
        from recsys_cli.workspace import finished

        run = finished(session.workspace.run(name))
        if len(like := session.workspace.runs_like(name)) > 1:  # of a model, such as several candidates of `auto`
            of = "" if run.evaluation.is_file() else ", not evaluated"
            emit(Message(f"run {run.folder.name}: the latest of {len(like):,} runs of {name}{of} (all: recsys status)"))
        return run
    return _best_run(session, emit)


def _best_run(session: Session, emit: Emit) -> TrainedRun:
    """Return the run of the current data with the best rankings of valid; if none has any, the run of the current config."""
    from recsys_cli.config import load
    from recsys_cli.stages.auto import METRIC, value_on_valid
    from recsys_cli.stages.etl import prepared_data

    config = load(config_path(session, None))
    by_key: dict[str, list[TrainedRun]] = {}
    for run in reversed(session.workspace.runs()):  # of equal ones the latest
        with suppress(RecsysError):  # a damaged run
            if run.exists:
                by_key.setdefault(run.manifest["data"].get("key"), []).append(run)
    try:
        key = prepared_data(config, session.workspace).key
    except DataError as error:  # such as raw tables of another machine
        if len(by_key) != 1:
            raise DataError(error.message, hint="name a run: recsys status") from error
        (key,) = by_key
    ranked: list[tuple[float, TrainedRun]] = []
    for run in by_key.get(key, ()):
        with suppress(RecsysError):
            if (value := value_on_valid(run)) is not None:
                ranked.append((value, run))
    if ranked:
        value, best = max(ranked, key=lambda one: one[0])
        why = f"{METRIC} of {value:.4f} on valid, the best of {len(ranked):,}" if len(ranked) > 1 else "the only one"
    else:
        best, why = find_run(config, session.workspace), f"the run of the current config; none has {METRIC} on valid"
    emit(Message(f"run {best.folder.name}: {why} (name another one: recsys status)"))
    return best


def find_run(config: RunConfig, workspace: Workspace) -> TrainedRun:
    """Return the latest finished run of a config.

    Raises:
        MissingArtifactError: The config is not trained, or its run is not finished.
    """
    from recsys_cli.stages.auto import chosen_run
    from recsys_cli.stages.etl import prepared_data

    return chosen_run(config, prepared_data(config, workspace), workspace)


def warn(emit: Emit, source: TrainedRun | Bundle) -> None:
    """Emit the warning about rankings below popularity, of the latest evaluation or of a bundle's manifest, if any."""
    from recsys_cli.workspace import Bundle

    text = None
    with suppress(RecsysError):  # the command itself reports damage
        if isinstance(source, Bundle):
            text = source.manifest.get("warning")
        elif source.evaluation.is_file():
            from recsys_cli.evaluation.result import Evaluation

            text = Evaluation.read(source.evaluated().evaluation).warning
    if text:
        emit(Message(str(text), "warning"))
