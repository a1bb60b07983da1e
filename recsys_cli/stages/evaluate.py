"""`recsys evaluate`: a trained run gets its evaluation.json and its report.html."""

from __future__ import annotations

import json
from typing import Any

from recsys_cli.config import EvaluateConfig, RunConfig
from recsys_cli.errors import DataError, MissingArtifactError
from recsys_cli.evaluation import Ceiling, Evaluation, Measurements
from recsys_cli.evaluation.measure import ComputeSettings, measure
from recsys_cli.evaluation.rankings import Rankings
from recsys_cli.evaluation.report import render
from recsys_cli.evaluation.report.history import read_history
from recsys_cli.evaluation.report.recommended import RankingSection
from recsys_cli.evaluation.selection import Selection, note
from recsys_cli.events import Emit, ignore
from recsys_cli.features.expression import parse
from recsys_cli.stages import Made
from recsys_cli.stages.keys import code_of_metrics
from recsys_cli.stages.loaded_run import config_of, model_of, names_of
from recsys_cli.training import hardware
from recsys_cli.training.allocator import keep_freed_memory
from recsys_cli.workspace import PreparedData, TrainedRun, TunedStudy, Workspace, key_of, run_lock, write_text

_VERSION = 4
"""Of what is measured: part of the key, so that figures of an earlier version are measured again."""
_HOW = {"batch_size"}
"""What of the evaluate section is how, not what: no part of the key."""


def evaluate(
    run: TrainedRun,
    workspace: Workspace,
    *,
    config: EvaluateConfig | None = None,
    force: bool = False,
    emit: Emit = ignore,
) -> Made[TrainedRun]:
    """Measure a run's best checkpoint beside baselines, unless that is done already.

    Args:
        run: A finished run.
        workspace: Where its data is.
        config: What to measure; as in the run's own config where left out.
        force: Measure again although it is up to date.
        emit: Takes progress.

    Raises:
        MissingArtifactError: The run is not finished, or its data is gone.
        ConfigError: The split has no rows, the device is not there, or no table has the column `evaluate.title`.
        DataError: The labels are not 0 and 1, or the checkpoint is not of this model.
        TrainingError: The model's scores are no numbers.
    """
    whole = config_of(run)
    config = config or whole.evaluate
    run = run.evaluated(config.candidates)
    key = evaluation_key(run.key, config)
    with workspace.lock(run_lock(run), emit=emit):
        if not force and _is_fresh(run, key):
            return Made(run, up_to_date=True)
        data = workspace.data_of(run)
        names = names_of(whole, data, workspace, title=config.title)  # before the work: the column may not be there
        found, rankings = _measure(run, data, whole, config, emit=emit)
        selected = selected_on(found.split, run, workspace)
        if selected:
            notes = (note(selected, found.split, has_test=data.rows("test") > 0), *found.notes)
            found = found.model_copy(update={"notes": notes})
        evaluation = Evaluation(
            key=key,
            run=run.folder.name,
            model=whole.model.name,
            dataset=whole.dataset.called,
            selected=selected,
            ceiling=_ceiling(workspace, whole),
            device=str(hardware.device(whole.train.device)),
            config=config,
            **dict(found),
        )
        _write(run, evaluation, rankings, RankingSection.of(rankings, data, names, config))
    return Made(run, up_to_date=False)


def evaluation_key(run_key: str, config: EvaluateConfig) -> str:
    """Return what an evaluation depends on: the run, and what is asked of it."""
    asked = config.model_dump(mode="json", exclude=_HOW)
    return key_of("evaluation", _VERSION, run_key, asked, *code_of_metrics(config.metrics))


def selected_on(split: str, run: TrainedRun, workspace: Workspace) -> tuple[Selection, ...]:
    """Return what the rows of a split have chosen of a run: valid chooses among epochs, and among the trials of a study."""
    if split != "valid":
        return ()
    found: list[Selection] = ["epoch"] if run.manifest["valid"] and len(run.manifest["history"]) > 1 else []
    if any(run.folder.name == trial["run"] for study in workspace.studies() for trial in _trials(study)):
        found.append("trial")
    return tuple(found)


def _trials(study: TunedStudy) -> list[dict[str, Any]]:
    """Return the trials of a study; one that cannot be read tells nothing."""
    try:
        trials: list[dict[str, Any]] = study.manifest["ranking"]
    except (DataError, KeyError):
        return []
    return trials if len(trials) > 1 else []


def _write(run: TrainedRun, evaluation: Evaluation, rankings: Rankings, shown: RankingSection | None) -> None:
    """Write what was found; the file that tells whether it is up to date comes last."""
    page = render(
        evaluation,
        history=read_history(run.metrics),
        config=run.config.read_text(encoding="utf-8"),
        manifest=run.manifest,
        rankings=shown,
    )
    write_text(run.report, page)
    rankings.save(run.rankings)
    run.write_evaluation(json.loads(evaluation.model_dump_json()))


def _is_fresh(run: TrainedRun, key: str) -> bool:
    try:
        run.verify_evaluation()
        return Evaluation.read(run.evaluation).key == key
    except (MissingArtifactError, DataError):
        return False


def _measure(
    run: TrainedRun, data: PreparedData, whole: RunConfig, config: EvaluateConfig, *, emit: Emit
) -> tuple[Measurements, Rankings]:
    """Measure, and note what is known of how the data was split."""
    device = hardware.device(whole.train.device)
    place = ComputeSettings(device=device, memory=whole.train.memory_mib, emit=emit)
    keep_freed_memory()
    found, rankings = measure(model_of(run, whole, data).to(device), data, config, compute=place)
    leakage = getattr(whole.split, "leakage", None)
    notes = (*found.notes, *([_sentence(leakage)] if isinstance(leakage, str) else []))
    return found.model_copy(update={"notes": notes}), rankings


def _ceiling(workspace: Workspace, whole: RunConfig) -> Ceiling | None:
    """Return what the data allows, where its generator knows that and the config's main label is the one that it knows it for."""
    raw = workspace.raw(whole.dataset.name)
    known = raw.manifest.get("facts", {}).get("ceiling") if raw.exists else None
    main = whole.features.labels[0]
    label = next((op.expressions[main] for op in whole.features.ops if main in op.expressions), None)
    if known is None or label is None or parse(label) != parse(known["label"]):
        return None
    return Ceiling(label=known["label"], auc=known["auc"])


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."
