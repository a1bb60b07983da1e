"""A finished run as something to ask: its config, its model with the best weights, and what its data's ids stand for."""

from __future__ import annotations

from recsys_cli.config import Placement, RunConfig, load
from recsys_cli.etl.titles import read_titles
from recsys_cli.evaluation.names import IdNames
from recsys_cli.features.schema import Role
from recsys_cli.models import build
from recsys_cli.models.model import Model
from recsys_cli.models.weights import load_weights
from recsys_cli.workspace import PreparedData, TrainedRun, Workspace, not_finished


def config_of(run: TrainedRun) -> RunConfig:
    """Return the config that a run was trained with, once its files are found to be as they were written.

    Raises:
        MissingArtifactError: The run is not finished, or not there, or one of its files is missing.
        DataError: One of its files is damaged.
    """
    if not run.exists:
        raise not_finished(run)
    run.verify()
    return load(run.config)


def model_of(run: TrainedRun, config: RunConfig, data: PreparedData) -> Model:
    """Return the run's best model, in evaluation mode, on the CPU.

    Raises:
        DataError: The checkpoint is not of this model.
    """
    # Tables that were sharded are whole in the checkpoint, and larger than a device.
    placement: Placement = "device" if config.model.embedding.placement == "device" else "host"
    model = build(config.model.name, config.model.options, data.schema, placement=placement)
    load_weights(model, run.checkpoint("best"))
    return model.eval()


def held_out_split(config: RunConfig, data: PreparedData) -> str | None:
    """Return the split that an evaluation measures; None where there is none."""
    wanted = config.evaluate.split
    return next((split for split in ("test", "valid") if data.rows(split) and wanted in {split, "auto"}), None)


def earlier_splits(config: RunConfig, data: PreparedData) -> tuple[str, ...]:
    """Return the splits before it: the user histories of an evaluation."""
    return ("train", "valid") if held_out_split(config, data) == "test" and data.rows("valid") else ("train",)


def names_of(config: RunConfig, data: PreparedData, workspace: Workspace, *, title: str | None) -> IdNames:
    """Return what users and items are called, with titles where the raw data has them.

    Args:
        config: Its dataset, and which columns are user and item.
        data: Whose ids they are.
        workspace: Where the raw data is.
        title: `evaluate.title`.

    Raises:
        ConfigError: There is no such column.
    """
    ids = IdNames(data).values(Role.ITEM)
    titles = read_titles(config, workspace.raw(config.dataset.name).folder, ids, title=title)
    return IdNames(data, titles)
