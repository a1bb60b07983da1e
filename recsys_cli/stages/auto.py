"""`model: {name: auto}`: quick candidates as ordinary runs, and the best of them by its valid metric.

The choice needs no artifact: it follows from the finished runs of the candidates, which later commands find by their keys.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq

from recsys_cli.config import BenchModel, RunConfig, with_model
from recsys_cli.errors import ConfigError, MissingArtifactError, RecsysError, TrainingError
from recsys_cli.events import Emit, Event, Message, Progress
from recsys_cli.features.schema import Column, Role
from recsys_cli.registry import AUTO
from recsys_cli.stages import Candidate, StageResult
from recsys_cli.stages.run_selection import run_key, unfinished_run
from recsys_cli.workspace import PreparedData, TrainedRun, Workspace, not_finished

METRIC = "ndcg@10"
"""Metric of the choice, on the users of valid that all candidates rank."""
WITHOUT_VALID = "ease"
"""Model without a valid split."""
_HALF_LIVES = (8, 64)
"""Parts of the time of train that are half-lives of popularity."""
_SASREC_ROWS = 2_000_000
"""Train rows above which sasrec is left out: about 20 minutes of a core, by 21 µs for a row and epoch on MovieLens latest-small."""
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
    models, left_out = _models(data)
    if not data.rows("valid"):
        left_out.append(
            f"the data has no valid split to choose a model on, so {WITHOUT_VALID} is taken: set split.valid"
        )
        models = {WITHOUT_VALID: models[WITHOUT_VALID]}
    seed, closed_form = config.train.seed, {"monitor": METRIC, "devices": 1}
    made = {
        name: BenchModel.model_validate({**model, "train": {"monitor": METRIC} if name == "sasrec" else closed_form})
        for name, model in models.items()
    }
    return Candidates({name: with_model(config, model, seed=seed) for name, model in made.items()}, tuple(left_out))


def train_candidates(
    train_on: Train, data: PreparedData, config: RunConfig, workspace: Workspace, *, force: bool, emit: Emit
) -> StageResult[TrainedRun]:
    """Train the missing candidates, resume unfinished ones, and return the run of the best.

    Raises:
        RecsysError: All candidates failed; the error is that of the last one.
        KeyboardInterrupt: Interrupted; the next call resumes the run.
    """
    found, results = candidates_of(config, data), {}
    failure: RecsysError | None = None
    messages: dict[str, list[Event]] = {label: [] for label in found.configs}
    for text in found.left_out:
        emit(Message(text, "warning"))
    emit(Progress("candidates", 0, len(found.configs), unit="models"))
    for number, (label, own) in enumerate(found.configs.items(), start=1):
        key = run_key(own, data)
        resume = not force and unfinished_run(workspace, key) is not None
        try:
            results[label] = train_on(
                data, own, workspace, resume=resume, force=force, emit=_keeping(messages[label], emit)
            )
        except (RecsysError, MemoryError, RuntimeError) as error:  # one failed model does not stop the others
            failure = error if isinstance(error, RecsysError) else TrainingError(f"{label} failed: {error}")
            emit(Message(f"{label} failed: {failure.message}" if failure is error else failure.message, "warning"))
            if (left := unfinished_run(workspace, key)) is not None:  # else it would count as interrupted
                workspace.remove(left)
        gc.collect()
        emit(Progress("candidates", number, len(found.configs), unit="models"))
    if failure is not None and not results:
        raise failure
    ranked = _ranked({label: made.artifact for label, made in results.items()})
    for event in messages[ranked[0].label]:
        emit(event)
    return StageResult(
        results[ranked[0].label].artifact, all(made.up_to_date for made in results.values()), candidates=ranked
    )


def chosen_run(config: RunConfig, data: PreparedData, workspace: Workspace) -> TrainedRun:
    """Return the latest run of a config, or of the best candidate of `auto`.

    Raises:
        MissingArtifactError: There is no finished run, or a candidate was interrupted.
    """
    return _chosen(config, data, workspace)[1]


def chosen_config(config: RunConfig, data: PreparedData, workspace: Workspace) -> RunConfig:
    """Return the config with the model of the best candidate in the place of `auto`; see `chosen_run`."""
    label, _ = _chosen(config, data, workspace)
    return candidates_of(config, data).configs[label].model_copy(update={"tune": config.tune})


def _chosen(config: RunConfig, data: PreparedData, workspace: Workspace) -> tuple[str, TrainedRun]:
    configs = candidates_of(config, data).configs if config.model.name == AUTO else {config.model.name: config}
    keys = {label: run_key(own, data) for label, own in configs.items()}
    finished = [run for run in workspace.runs() if run.exists]
    # Damaged runs count: their readers name the file, and another model would be a surprise.
    runs = {label: run for label, key in keys.items() for run in finished if run.folder.name.endswith(key[:8])}
    interrupted = [unfinished_run(workspace, key) for label, key in keys.items() if label not in runs]
    if found := [run for run in interrupted if run is not None]:
        raise not_finished(found[-1])
    if not runs:
        raise MissingArtifactError(
            f"the model of this config is not trained in {workspace.root}",
            hint="recsys train; recsys status shows all runs",
        )
    best = _ranked(runs)[0].label if len(runs) > 1 else next(iter(runs))
    return best, runs[best]


def _keeping(messages: list[Event], emit: Emit) -> Emit:
    """Forward progress, and keep messages for the case that the candidate is chosen."""
    return lambda event: emit(event) if isinstance(event, Progress) else messages.append(event)


def _models(data: PreparedData) -> tuple[dict[str, dict[str, Any]], list[str]]:
    models: dict[str, dict[str, Any]] = {}
    times = data.schema.select(lambda column: column.role is Role.TIMESTAMP and column.table is None)
    for parts, half_life in _half_lives(data, times[0]) if times else ():
        models[f"popularity, half-life 1/{parts} of train"] = {"name": "popularity", "half_life": half_life}
    models |= {name: {"name": name} for name in ("popularity", "item-knn", "ease")}
    if not times:
        return models, []
    if data.rows("train") > _SASREC_ROWS:
        return models, [
            f"sasrec is no candidate for more than {_SASREC_ROWS:,} train rows: recsys train model.name=sasrec trains it"
        ]
    return {**models, "sasrec": {"name": "sasrec"}}, []


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


def _ranked(runs: dict[str, TrainedRun]) -> tuple[Candidate, ...]:
    """Return the candidates, best first; of equal ones the simpler one."""
    found = []
    for label, run in runs.items():
        manifest = run.manifest
        value = (manifest["valid"] or {}).get(METRIC)
        found.append(Candidate(label, run.folder.name, METRIC, value, manifest["seconds"]["train"]))
    return tuple(
        sorted(found, key=lambda one: (-one.value if one.value is not None else 0.0, one.label != WITHOUT_VALID))
    )
