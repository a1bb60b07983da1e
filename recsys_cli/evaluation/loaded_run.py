"""Loading of finished runs: config, splits, and the model with the best weights."""

from __future__ import annotations

from recsys_cli.config import Placement, RunConfig, load
from recsys_cli.evaluation.training_context import make_context
from recsys_cli.models import build
from recsys_cli.models.embedding import TableType, quantize_tables
from recsys_cli.models.model import Model
from recsys_cli.models.weights import load_weights
from recsys_cli.workspace import PreparedData, TrainedRun, not_finished


def config_of(run: TrainedRun) -> RunConfig:
    """Return the verified config of a run."""
    if not run.exists:
        raise not_finished(run)
    run.verify_config()
    return load(run.config)


def model_of(run: TrainedRun, config: RunConfig, data: PreparedData) -> Model:
    """Return the model of a run with its best weights, in evaluation mode on the CPU.

    Raises:
        MissingArtifactError: The checkpoint is missing.
        DataError: The checkpoint is damaged, or of another model.
    """
    run.verify(run.checkpoint("best"))
    model = build(config.model.name, config.model.options, data.schema, placement=placement_of(config))
    load_weights(model, run.checkpoint("best"))
    return model.eval()


def placement_of(config: RunConfig) -> Placement:
    """Return the placement of the tables of a trained model: whole tables may exceed a device if they were sharded."""
    return "device" if config.model.embedding.placement == "device" else "host"


def model_in_context(run: TrainedRun, config: RunConfig, data: PreparedData, *, tables: TableType = "fp32") -> Model:
    """Return `model_of`, with tables of a type, and with the interactions of an evaluation, read on demand, as its context."""
    model = model_of(run, config, data)
    if tables != "fp32":
        quantize_tables(model, tables)
    model.set_context(make_context(data, *earlier_splits(config, data)))
    return model


def held_out_split(config: RunConfig, data: PreparedData) -> str | None:
    """Return the split of an evaluation, or None."""
    choice = config.evaluate.split
    return next((split for split in ("test", "valid") if data.rows(split) and choice in {split, "auto"}), None)


def earlier_splits(config: RunConfig, data: PreparedData) -> tuple[str, ...]:
    """Return the splits before the held-out split of an evaluation."""
    return ("train", "valid") if held_out_split(config, data) == "test" and data.rows("valid") else ("train",)
