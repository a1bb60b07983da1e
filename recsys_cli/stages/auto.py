"""`model: {name: auto}`: quick candidates as ordinary runs, and the best of them by its valid metric.

The choice follows from the finished runs of the candidates, which later commands find by their keys. The work of each candidate
has a bound in rows, users and items, never in seconds: the same config makes the same choice on any machine.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from recsys_cli.config import BenchModel, RunConfig, with_model
from recsys_cli.errors import ConfigError, MissingArtifactError, RecsysError, TrainingError
from recsys_cli.events import Emit, Message, Progress, divert_messages
from recsys_cli.features.schema import Column, Role
from recsys_cli.models.configs.matrix import OWN_FIRST, affordable_ease
from recsys_cli.packages import pq
from recsys_cli.registry import AUTO
from recsys_cli.stages import Candidate, StageResult
from recsys_cli.stages.run_selection import run_key, unfinished_run
from recsys_cli.training.member import refuse_torchrun
from recsys_cli.workspace import PreparedData, TrainedRun, Workspace, not_finished, publishing, write_json

METRIC = "ndcg@10"
"""Metric of the choice, on the users of valid that all candidates rank."""
_OF_EQUALS = "ease"
"""Candidate chosen among equal values, or without any."""
_HALF_LIVES = (8, 64)
"""Parts of the time of train that are half-lives of popularity."""
_ROWS, _FEWEST_EPOCHS, _PATIENCE = 3_000_000, 3, 3
"""Most rows of sasrec in all epochs, its fewest epochs, and its patience: 32 s of a core for MovieLens latest-small."""
_RESUME = "recsys train --resume continues the candidates of auto"
Train = Callable[..., StageResult[TrainedRun]]


@dataclass(frozen=True)
class Candidates:
    """Configs of the candidates by label, from simple to complex, and the reasons for models left out."""

    configs: dict[str, RunConfig]
    left_out: tuple[str, ...] = ()


def candidates_of(config: RunConfig, data: PreparedData) -> Candidates:
    """Return the candidates for the prepared data.

    Raises:
        ConfigError: A warm start needs a single model.
    """
    if config.train.continue_from is not None:
        raise ConfigError(
            "model.name=auto trains several models, and train.continue_from is of one",
            hint="set model.name to the model of the run",
        )
    models, left_out = quick_models(data, repeats=config.evaluate.repeats)
    closed_form: dict[str, Any] = {"monitor": METRIC, "devices": 1}
    if not data.rows("valid"):
        closed_form["early_stopping"] = 1  # measured on rows held out of train, as epochs are
    configs = {}
    for label, model in models.items():
        options = {"monitor": METRIC} if label == "sasrec" else closed_form
        own = with_model(config, BenchModel.model_validate({**model, "train": options}), seed=config.train.seed)
        configs[label] = _bounded(own, data) if label == "sasrec" else own
    return Candidates(configs, tuple(left_out))


def _bounded(config: RunConfig, data: PreparedData) -> RunConfig:
    """Return the config of sasrec with fewer epochs and less patience."""
    train, epochs = config.train, _ROWS // data.rows("train")
    bounds = {
        "epochs": min(train.epochs, epochs),
        "early_stopping": train.early_stopping and min(train.early_stopping, _PATIENCE),
    }
    return config.model_copy(update={"train": train.model_copy(update=bounds)})


def train_candidates(
    train_on: Train, data: PreparedData, config: RunConfig, workspace: Workspace, *, force: bool, emit: Emit
) -> StageResult[TrainedRun]:
    """Train the missing candidates, resume unfinished ones, and return the run of the best.

    Raises:
        ConfigError: This is a process of torchrun.
        RecsysError: All candidates failed; the error is that of the last one.
        KeyboardInterrupt: Interrupted; the next call resumes the run.
    """
    refuse_torchrun("model.name=auto trains several models, most of them in one process")
    found, results = candidates_of(config, data), {}
    failure: RecsysError | None = None
    messages: dict[str, list[Message]] = {label: [] for label in found.configs}
    for text in found.left_out:
        emit(Message(text))
    for number, (label, own) in enumerate(found.configs.items()):
        # The last candidates take most of the time: no remaining time follows from the first ones.
        emit(Progress("candidates", number, len(found.configs), unit="models", fields={"now": label}, steady=False))
        key = run_key(own, data)
        try:
            results[label] = train_on(
                data, own, workspace, resume=None, force=force, emit=divert_messages(emit, messages[label].append)
            )
        except (RecsysError, MemoryError, RuntimeError) as error:  # one failed model does not stop the others
            failure = error if isinstance(error, RecsysError) else TrainingError(f"{label} failed: {error}")
            emit(Message(f"{label} failed: {failure.message}" if failure is error else failure.message, "warning"))
            if (left := unfinished_run(workspace, key)) is not None:  # else it would count as interrupted
                workspace.remove(left)
        gc.collect()
    emit(Progress("candidates", len(found.configs), len(found.configs), unit="models"))
    if failure is not None and not results:
        raise failure
    ranked = _ranked({label: made.artifact for label, made in results.items()})
    for event in messages[ranked[0].label]:
        emit(event)
    chosen, up_to_date = results[ranked[0].label].artifact, all(made.up_to_date for made in results.values())
    if not (up_to_date and chosen.choice.is_file()):
        with publishing(chosen.folder):
            write_json(chosen.choice, {"candidates": [asdict(one) for one in ranked]})
    return StageResult(chosen, up_to_date, candidates=ranked)


def chosen_run(config: RunConfig, data: PreparedData, workspace: Workspace) -> TrainedRun:
    """Return the latest run of a config, or of the best candidate of `auto`.

    Raises:
        MissingArtifactError: There is no finished run, or a candidate was interrupted.
    """
    return _chosen(config, data, workspace)[1]


def chosen_config(config: RunConfig, data: PreparedData, workspace: Workspace) -> RunConfig:
    """Return the config with the model of the best candidate in the place of `auto`; see `chosen_run`."""
    return _chosen(config, data, workspace)[0].model_copy(update={"tune": config.tune})


def _chosen(config: RunConfig, data: PreparedData, workspace: Workspace) -> tuple[RunConfig, TrainedRun]:
    configs = candidates_of(config, data).configs if config.model.name == AUTO else {config.model.name: config}
    keys = {label: run_key(own, data) for label, own in configs.items()}
    finished = [run for run in workspace.runs() if run.exists]
    # Damaged runs count: their readers name the file, and another model would be a surprise.
    runs = {label: run for label, key in keys.items() for run in finished if run.folder.name.endswith(key[:8])}
    interrupted = [unfinished_run(workspace, key) for label, key in keys.items() if label not in runs]
    if found := [run for run in interrupted if run is not None]:
        error = not_finished(found[-1])
        raise MissingArtifactError(error.message, hint=_RESUME) if len(configs) > 1 else error
    if not runs:
        raise _not_trained(finished, data, workspace)
    best = _ranked(runs)[0].label if len(runs) > 1 else next(iter(runs))
    return configs[best], runs[best]


def _not_trained(finished: list[TrainedRun], data: PreparedData, workspace: Workspace) -> MissingArtifactError:
    """Return the error for a config without a run, with the finished runs of each prepared data."""
    runs: dict[str, list[str]] = {}
    for run in finished:
        if run.damage is None:
            runs.setdefault(str(run.manifest["data"].get("folder")), []).append(run.folder.name)
    listed = "; ".join(f"data {key} has {len(names):,}, the latest {names[-1]}" for key, names in runs.items())
    what = f"the model of this config is not trained in {workspace.root} on data {data.folder.name}"
    return MissingArtifactError(
        f"{what}. Finished runs: {listed}" if listed else what,
        hint=f"recsys train{', or name a run, such as recsys recommend RUN' if listed else ''}; recsys status shows all runs",
    )


def quick_models(data: PreparedData, *, repeats: bool) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return the model sections of the candidates by label, from cheap to expensive, and the reasons for bounds."""
    models: dict[str, dict[str, Any]] = {}
    left_out = []
    times = data.schema.select(lambda column: column.role is Role.TIMESTAMP and column.table is None)
    own_first: dict[str, dict[str, Any]] = {OWN_FIRST: {"name": "popularity", "own_first": True}} if repeats else {}
    for parts, half_life in _half_lives(data, times[0]) if times else ():
        models[f"popularity, half-life 1/{parts} of train"] = {"name": "popularity", "half_life": half_life}
        if repeats:
            own_first[f"{OWN_FIRST}, half-life 1/{parts} of train"] = {**own_first[OWN_FIRST], "half_life": half_life}
    models |= own_first
    models |= {name: {"name": name} for name in ("popularity", "item-knn", "ease")}
    users, items = (len(data.schema.only(role).own_ids) for role in (Role.USER, Role.ITEM))
    models["ease"] |= affordable_ease(users, items, data.rows("train"))
    if (most := models["ease"].get("max_items")) is not None:
        left_out.append(
            f"ease is tried on the {most:,} most popular of {items:,} items: recsys train model.name=ease takes all"
        )
    if times and _ROWS // data.rows("train") >= _FEWEST_EPOCHS:
        models["sasrec"] = {"name": "sasrec"}
        left_out.append(
            f"sasrec is tried until {_PATIENCE} epochs without improvement: recsys train model.name=sasrec is more patient"
        )
    elif times:
        left_out.append(
            f"sasrec is no candidate for more than {_ROWS // _FEWEST_EPOCHS:,} train rows: recsys train model.name=sasrec trains it"
        )
    if not data.rows("valid"):
        left_out.append("the data has no valid split: the candidates are compared on rows held out of train")
    return models, left_out


def _half_lives(data: PreparedData, time: Column) -> Iterator[tuple[int, float]]:
    """Yield fractions of the time of train, as 8 of 1/8, with the half-life in three digits."""
    ends: list[float] = []
    for shard in data.shards("train"):
        metadata = pq.read_metadata(shard)
        place = metadata.schema.to_arrow_schema().get_field_index(time.name)
        groups = (metadata.row_group(group).column(place).statistics for group in range(metadata.num_row_groups))
        ends += [
            float(end) for group in groups if group is not None and group.has_min_max for end in (group.min, group.max)
        ]
    if ends and (span := (max(ends) - min(ends)) / data.schema.ticks) > 0:
        yield from ((parts, float(f"{span / parts:.3g}")) for parts in _HALF_LIVES)


def value_on_valid(run: TrainedRun, metric: str = METRIC) -> float | None:
    """Return a metric of a finished run on valid, or else on rows held out of train; None if it is not measured."""
    manifest = run.manifest
    value: float | None = (manifest["valid"] or manifest.get("held_out", {}).get("valid", {})).get(metric)
    return value


def _ranked(runs: dict[str, TrainedRun]) -> tuple[Candidate, ...]:
    """Return the candidates, best first; of equal ones the simpler one."""
    found = []
    for label, run in runs.items():
        found.append(Candidate(label, run.folder.name, METRIC, value_on_valid(run), run.manifest["seconds"]["train"]))
    return tuple(sorted(found, key=lambda one: (-one.value if one.value is not None else 0.0, one.label != _OF_EQUALS)))
