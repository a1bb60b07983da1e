"""`recsys train --profile`: profile of some training steps, without a run."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from recsys_cli.config import RunConfig
from recsys_cli.events import Emit, Progress, ignore
from recsys_cli.stages.etl import prepared_data
from recsys_cli.stages.trainer import new_model, trainer_of
from recsys_cli.stages.warm_start import warm_start
from recsys_cli.training import hardware
from recsys_cli.training.distributed.ranks import Ranks
from recsys_cli.training.profile import STEPS, WARM_UP, profile_steps
from recsys_cli.workspace import PreparedData, Workspace


def profile(config: RunConfig, workspace: Workspace, *, emit: Emit = ignore) -> dict[str, Any]:
    """Profile the training steps of a config; see `profile_on`.

    Raises:
        MissingArtifactError: The data is not prepared.
        ConfigError: The model does not fit the data, or the device does not exist.
        DataError: A file does not match schema.json.
        TrainingError: The loss is not finite.
    """
    return profile_on(prepared_data(config, workspace), config, workspace, emit=emit)


def profile_on(data: PreparedData, config: RunConfig, workspace: Workspace, *, emit: Emit = ignore) -> dict[str, Any]:
    """Profile training steps on prepared data, in this process whatever the value of `train.devices`.

    Returns:
        JSON values: the fields of `training.profile.Profile`, device, precision, peak_memory, and trace, a path in
        WORKSPACE/profiles.
    """
    data.verify()
    # One epoch may have too few steps; the learning rates are those of the first steps in any case.
    options = config.train.model_copy(update={"epochs": WARM_UP + STEPS, "early_stopping": None, "devices": 1})
    name = config.model.name
    model = new_model(data, config.model, options)
    warm_start(model, name, data, options.continue_from, workspace, emit=emit)
    trainer = trainer_of(model, name, data, options, ranks=Ranks(), emit=emit)
    trace = workspace.new_trace(workspace.new_run(name, data.key).folder.name)
    steps = profile_steps(
        trainer, trace, on_step=lambda done: emit(Progress("profile", done, WARM_UP + STEPS, "steps"))
    )
    return {
        **asdict(steps),
        "device": trainer.device.type,
        "precision": trainer.step.precision,
        "peak_memory": hardware.peak_memory(),
        "trace": str(trace),
    }
