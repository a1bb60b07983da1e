"""`recsys evaluate`: evaluation.json and report.html of a trained run."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from recsys_cli.config import EvaluateConfig, RunConfig
from recsys_cli.errors import DataError, MissingArtifactError
from recsys_cli.evaluation import Ceiling, Evaluation, Measurements
from recsys_cli.evaluation.held_out import Ints
from recsys_cli.evaluation.loaded_run import config_of, model_of
from recsys_cli.evaluation.measure import ComputeSettings, choose_split, measure
from recsys_cli.evaluation.new_users import SplitByUser
from recsys_cli.evaluation.ranking import Top
from recsys_cli.evaluation.rankings import Rankings
from recsys_cli.evaluation.report import render
from recsys_cli.evaluation.report.users import ExampleUser, example_users
from recsys_cli.evaluation.result import Selection, note
from recsys_cli.evaluation.systems import Part, Systems
from recsys_cli.events import Emit, Message, ignore
from recsys_cli.executors.cluster import Cluster
from recsys_cli.metrics import BEYOND, GROUPED, IMPRESSION, OF_NUMBERS, POINTWISE, RANKING
from recsys_cli.models.configs.matrix import OWN_FIRST
from recsys_cli.ops.expression import parse
from recsys_cli.stages import StageResult
from recsys_cli.stages.cluster import open_cluster, open_once
from recsys_cli.stages.keys import code_of_metrics
from recsys_cli.stages.names import names_of
from recsys_cli.training import hardware
from recsys_cli.training.hardware import keep_freed_memory
from recsys_cli.workspace import PreparedData, TrainedRun, TunedStudy, Workspace, key_of, run_lock, write_text

_VERSION = 8
"""Version of the metrics, part of the key: evaluations of an earlier version are out of date."""
_NOT_IN_KEY = {"batch_size"}
"""Options without effect on the result."""


def evaluate(
    run: TrainedRun,
    workspace: Workspace,
    *,
    config: EvaluateConfig | None = None,
    cold_slots: int | None = None,
    force: bool = False,
    cluster: str | None = None,
    emit: Emit = ignore,
) -> StageResult[TrainedRun]:
    """Evaluate the best checkpoint of a run and the baselines, unless the evaluation is up to date.

    The default section and `cold_slots` are those of the run's config. Workers of a cluster, if any, rank for blocks of users.

    Raises:
        MissingArtifactError: The run is not finished, or its data is gone.
        ConfigError: The split has no rows, the device does not exist, or no table has the column `evaluate.title`.
        DataError: A label is not 0 or 1, or the checkpoint is of another model.
        TrainingError: A score is not finite.
        RecsysError: The cluster does not answer, or a worker has a problem.
    """
    run_config = config_of(run)
    config = config or run_config.evaluate
    slots = run_config.recommend.cold_slots if cold_slots is None else cold_slots
    run = run.evaluated(config.candidates)
    key = evaluation_key(run.key, config, cold_slots=slots)
    with workspace.lock(run_lock(run), emit=emit):
        if not force and _is_fresh(run, key):
            return StageResult(run, up_to_date=True)
        run.verify(run.metrics)
        data = workspace.data_of(run)
        names = names_of(run_config, data, workspace, title=config.title)  # first, to fail early without the column
        with open_cluster(cluster, workspace, emit) as opened:
            measurements, rankings = _measure(run, data, run_config, config, opened, slots=slots, emit=emit)
        split = measurements.split
        selected = selected_on(split, run, workspace)
        notes = measurements.notes
        if selected:
            notes = (note(selected, split, has_test=data.rows("test") > 0), *notes)
        elif run.choice.is_file():
            notes = (*notes, f"Valid chose this model among several; these figures are of {split}.")
        evaluation = Evaluation(
            key=key,
            run=run.folder.name,
            model=OWN_FIRST if run_config.model.options.get("own_first") else run_config.model.name,
            dataset=run_config.dataset.called,
            selected=selected,
            ceiling=_ceiling(workspace, run_config),
            device=str(hardware.device(run_config.train.device)),
            config=config,
            **{**dict(measurements), "notes": notes},
        )
        _write(run, evaluation, rankings, example_users(rankings, data, names, config))
    return StageResult(run, up_to_date=False)


def evaluation_key(run_key: str, config: EvaluateConfig, *, cold_slots: int = 0) -> str:
    """Return the hash of an evaluation's run, options and metrics: those always reported by name, others with their code."""
    options = config.model_dump(mode="json", exclude=_NOT_IN_KEY)
    reported = sorted({*POINTWISE, *OF_NUMBERS, *GROUPED, *IMPRESSION, *RANKING, *BEYOND})
    slots = [f"cold slots {cold_slots}"] if cold_slots else []
    return key_of("evaluation", _VERSION, run_key, options, reported, *code_of_metrics(config.metrics), *slots)


def selected_on(split: str, run: TrainedRun, workspace: Workspace) -> tuple[Selection, ...]:
    """Return the selections of a run on a split: valid selects the epoch, the trial of a study, and the candidate of `auto`."""
    if split != "valid":
        return ()
    selections: list[Selection] = ["epoch"] if run.manifest["valid"] and len(run.manifest["history"]) > 1 else []
    if any(run.folder.name == trial["run"] for study in workspace.studies() for trial in _trials(study)):
        selections.append("trial")
    if run.choice.is_file():
        selections.append("model")
    return tuple(selections)


def _trials(study: TunedStudy) -> list[dict[str, Any]]:
    """Return the trials of a study with several; none of an unreadable study."""
    try:
        trials: list[dict[str, Any]] = study.manifest["ranking"]
    except (DataError, KeyError):
        return []
    return trials if len(trials) > 1 else []


def _write(run: TrainedRun, evaluation: Evaluation, rankings: Rankings, users: list[ExampleUser]) -> None:
    """Write all files of an evaluation; evaluation.json, with the key, comes last."""
    config = run.config.read_text(encoding="utf-8")
    write_text(run.report, render(evaluation, config=config, manifest=run.manifest, users=users))
    rankings.save(run.rankings)
    run.write_evaluation(json.loads(evaluation.model_dump_json()))


def _is_fresh(run: TrainedRun, key: str) -> bool:
    try:
        run.verify_evaluation()
        return Evaluation.read(run.evaluation).key == key
    except (MissingArtifactError, DataError):
        return False


def _measure(
    run: TrainedRun, data: PreparedData, run_config: RunConfig, config: EvaluateConfig, cluster: Cluster | None, *,
    slots: int, emit: Emit,
) -> tuple[Measurements, Rankings]:  # fmt: skip
    """Measure a run, with rankings on the workers of a cluster if any, and with a note on leakage of the split."""
    device, command = hardware.device(run_config.train.device), uuid.uuid4().hex

    def rank(systems: Systems, parts: Iterable[Part]) -> Iterator[Top]:
        assert cluster is not None
        return cluster.map(RankedBlock(command, run, data, config, str(device), systems.new_users), parts)

    settings = ComputeSettings(device, run_config.train.memory_mib, emit, rank if cluster else None)
    keep_freed_memory()
    model, is_chosen = model_of(run, run_config, data).to(device), run.choice.is_file()
    measurements, rankings = measure(model, data, config, compute=settings, is_chosen=is_chosen, cold_slots=slots)
    if cluster and not measurements.ranking:
        emit(Message("without a ranking there was nothing to do for the cluster"))
    leakage = run_config.leakage
    notes = (*measurements.notes, *([_sentence(leakage)] if leakage else []))
    return measurements.model_copy(update={"notes": notes}), rankings


@dataclass(frozen=True)
class RankedBlock:
    """The ranking for a block of users: a task of an executor, with the device and the ranked cold-start users of the driver."""

    command: str
    run: TrainedRun
    data: PreparedData
    config: EvaluateConfig
    device: str
    new_users: Ints

    def __call__(self, part: Part) -> Top:
        """Rank by systems that are opened once per process."""
        with open_once(self.command, self._open) as systems:
            return systems.rank(part)

    def _open(self) -> Systems:
        keep_freed_memory()
        split = choose_split(self.data, self.config)
        by_user = SplitByUser.read(self.data, split, self.config)
        model = model_of(self.run, config_of(self.run), self.data).to(self.device)
        systems = Systems(model, self.data, split, by_user, self.new_users, self.config, self.device)
        model.set_context(systems.context)
        return systems


def _ceiling(workspace: Workspace, config: RunConfig) -> Ceiling | None:
    """Return the ceiling of synthetic data with the generator's label."""
    raw = workspace.raw(config.dataset.name)
    ceiling = raw.manifest.get("facts", {}).get("ceiling") if raw.exists else None
    main = config.features.labels[0]
    label = next((op.expressions[main] for op in config.features.ops if main in op.expressions), main)
    if ceiling is None or "auc" not in ceiling or parse(label) != parse(ceiling["label"]):
        return None
    return Ceiling(label=ceiling["label"], auc=ceiling["auc"])


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."
