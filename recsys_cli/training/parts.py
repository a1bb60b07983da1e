"""Training of a gradient-trained part of another model: fixed epochs, no validation, no files."""

from __future__ import annotations

import torch

from recsys_cli.config import TrainConfig
from recsys_cli.features.schema import Schema
from recsys_cli.loader import MemoryLoader, UserLoader
from recsys_cli.loader.steps import EpochSteps
from recsys_cli.models.model import Model, TrainingContext
from recsys_cli.training.data import TrainingData
from recsys_cli.training.objective import Objective
from recsys_cli.training.trainer import Trainer


def train_part(model: Model, config: TrainConfig, context: TrainingContext, schema: Schema) -> None:
    """Train a model in place, for all epochs of the config; the caller's random state is unchanged.

    Args:
        model: A gradient-trained model on its device.
        config: The `train` section.
        context: Interactions, for a model of users; or else one batch of rows.
        schema: Columns of the rows.

    Raises:
        TrainingError: The loss is not finite.
        DataError: No user has two items, for a model of users.
    """
    accumulated = config.gradient_accumulation_steps
    with torch.random.fork_rng(), torch.enable_grad():
        torch.manual_seed(config.seed)
        model.set_context(context)
        loader: EpochSteps
        balance = 1.0  # a batch of users has positives only
        if model.rows == "users":
            loader = UserLoader(
                context.interactions(), schema, batch_size=config.batch_size, seed=config.seed, device=model.device,
                parts=accumulated,
            )  # fmt: skip
        else:
            (rows,) = context.batches()
            positive = float(rows.labels[schema.label.name].mean())
            balance = (1 - positive) / positive if positive else 1.0
            loader = MemoryLoader(rows, batch_size=config.rows_of_a_step, seed=config.seed, parts=accumulated)
        objective = Objective.of(model, schema, config, balance=lambda: balance)
        for _ in Trainer(model, TrainingData(loader), config, objective=objective).events():
            pass
    model.eval()
