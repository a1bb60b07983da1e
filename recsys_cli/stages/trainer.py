"""Model and trainer of a config."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import astuple, replace
from functools import partial

import torch
from torch import Tensor

from recsys_cli.config import EvaluateConfig, ModelConfig, RunConfig, TrainConfig
from recsys_cli.config.load import model_config_type, train_defaults
from recsys_cli.errors import ConfigError
from recsys_cli.evaluation.loaded_run import make_context
from recsys_cli.evaluation.new_users import SplitByUser
from recsys_cli.events import Emit, Message, ignore
from recsys_cli.loader import Loader, UserLoader, check_targets, scales
from recsys_cli.loader.recent import RecentRows
from recsys_cli.loader.targets import negatives_per_positive
from recsys_cli.models import build
from recsys_cli.models.model import Model, TrainingContext
from recsys_cli.stages.monitor import monitor_or_fallback
from recsys_cli.training import hardware, optimizers
from recsys_cli.training.checkpoint import restore_optimizers
from recsys_cli.training.data import TrainingData, validation_batches
from recsys_cli.training.hardware import keep_freed_memory
from recsys_cli.training.objective import Objective
from recsys_cli.training.progress import TrainingResult, unit_of
from recsys_cli.training.ranks import Ranks
from recsys_cli.training.trainer import Trainer, fit_closed_form, train_part
from recsys_cli.workspace import PreparedData, TrainedRun


def new_model(data: PreparedData, model_config: ModelConfig, config: TrainConfig) -> Model:
    """Build the model of a config on its device, with initial weights.

    Raises:
        ConfigError: The model does not fit the data, or the device does not exist.
        DataError: A label is not 0 or 1, or a weight is negative or missing.
    """
    check_targets(data)
    device = hardware.device(config.device)
    keep_freed_memory()
    torch.manual_seed(config.seed)
    name, options, placement = model_config.name, model_config.options, model_config.embedding.placement
    model = build(name, options, data.schema, sparse=config.sparse_embeddings, placement=placement)
    if model.probabilistic:
        model.set_scales({name: astuple(scale) for name, scale in scales(data).items()})
    return model.to(device)


def fit_run(  # noqa: PLR0913 - one call for both kinds of models
    run: TrainedRun, model: Model, data: PreparedData, config: RunConfig, *,
    key: str, ranks: Ranks, resume: bool, emit: Emit, carried: dict[str, Tensor] | None = None,
) -> TrainingResult:  # fmt: skip
    """Train a model of `new_model` to the end, in the folder of a run; `carried`, state of a warm start, is emptied.

    Raises:
        ConfigError: The monitored metric is not measurable, or a closed-form model has several processes or a warm start.
        DataError: Train has no positive or no negative rows to balance.
        TrainingError: The loss is not finite, or `last` does not fit the model.
    """
    if model.rows != "all":
        trainer = trainer_of(model, data, config, ranks=ranks, emit=emit)
        if carried:
            restore_optimizers(carried, model, trainer.step.optimizers)
            carried.clear()  # a second copy of the state
        return trainer.fit(run, key=key, settings=config.model_dump(mode="json"), resume=resume)
    if ranks.world_size > 1 or config.train.continue_from is not None:
        raise ConfigError(
            f"{config.model.name} is fitted at once, in one process and without a warm start",
            hint="set train.devices=1, run it without torchrun, and remove train.continue_from",
        )
    context = make_context(data, "train", device=model.device, memory=config.train.memory_mib)
    objective = _objective(data, model, config, emit=emit)
    context = replace(context, train=train_part)
    return fit_closed_form(model, data, context, objective, run, memory=config.train.memory_mib, emit=emit)


def trainer_of(model: Model, data: PreparedData, config: RunConfig, *, ranks: Ranks, emit: Emit = ignore) -> Trainer:
    """Return the trainer of a gradient-trained model, as built by `new_model`; errors as of `fit_run`."""
    options = config.train
    ranks.prepare(model)
    context = make_context(data, "train", device=model.device)
    model.set_context(context)
    train = _batches(data, model, context, options, ranks)
    users = None
    if model.timestamp is not None and data.rows("valid"):
        by_user = SplitByUser.read(data, "valid", EvaluateConfig())
        model.set_earlier_rows(by_user.earlier)
        users = by_user.rows.user_idx
    valid = validation_batches(data, model.device, memory=options.memory_mib, ranks=ranks, history_users=users)
    batches = TrainingData(train, valid)
    for message in _remarks(model, batches, options, processes=ranks.world_size):
        emit(message)
    return Trainer(
        model, batches, options, objective=_objective(data, model, config, emit=emit), ranks=ranks, emit=emit
    )


def _objective(data: PreparedData, model: Model, config: RunConfig, *, emit: Emit) -> Objective:
    """Return the objective of a model, and announce options of the loss without an effect on it."""
    options, name = config.train, config.model.name
    default = train_defaults(model_config_type(name)).get("monitor")
    repeats = config.evaluate.repeats
    monitor = monitor_or_fallback(options.monitor, data, model, default=default, repeats=repeats, emit=emit)
    announce_unused(model.unused_options(options, data.schema), name, emit)
    balance = partial(negatives_per_positive, data, data.schema.label)
    return Objective.of(model, data.schema, options, balance=balance, monitor=monitor)


def announce_unused(options: Iterable[str], name: str, emit: Emit) -> None:
    """Warn of options without an effect on a model."""
    for option in options:
        why = ", which counts a pair of user and item once, unless its rows have weight 0"
        emit(Message(f"{option} has no effect on {name}{why if option == 'features.weight' else ''}", "warning"))


def _batches(
    data: PreparedData, model: Model, context: TrainingContext, config: TrainConfig, ranks: Ranks
) -> Loader | UserLoader:
    """Return the loader of this rank's share of the training rows."""
    recent = None
    if config.recent is not None:
        recent = RecentRows(config.recent.after * data.schema.ticks, config.recent.history, config.seed)
    if model.rows == "users":
        return UserLoader(
            context.interactions(), data.schema, batch_size=config.batch_size, seed=config.seed, device=model.device,
            rank=ranks.rank, world_size=ranks.world_size, parts=config.gradient_accumulation_steps,
            recent=recent,
        )  # fmt: skip
    return Loader(
        data, "train", batch_size=config.rows_of_a_step, shuffle=True, seed=config.seed, device=model.device,
        memory=config.memory_mib, rank=ranks.rank, world_size=ranks.world_size, parts=config.gradient_accumulation_steps,
        times=model.timestamp is not None, recent=recent,
    )  # fmt: skip


def _remarks(model: Model, data: TrainingData, config: TrainConfig, *, processes: int) -> Iterator[Message]:
    """Yield remarks on useless options, learning rates, and the monitored loss."""
    if config.ema_decay and config.sparse_embeddings and not optimizers.split(model)[1]:
        text = "train.ema_decay has no effect: the model only has tables, and train.sparse_embeddings excludes them"
        yield Message(text, "warning")
    yield from _rates(model, data, config.model_copy(update={"batch_size": data.train.batch_size}), processes)
    if data.valid is not None and config.monitor == "loss" and model.rows == "users":
        text = "a model trained on users has no loss of the valid split, so train.monitor=loss keeps the last epoch"
        yield Message(f"{text}; select the best one with train.monitor=ndcg@10", "warning")


def _rates(model: Model, data: TrainingData, config: TrainConfig, processes: int) -> Iterator[Message]:
    rates, rows = "learning rates are unchanged", data.train.step_rows(0)
    if config.scale_learning_rate != "none":
        rates = (
            f"learning rates are multiplied by {config.rate_factor:.4g} for batch_size {config.batch_size:,} "
            f"instead of {config.reference_batch_size:,} (scale_learning_rate is {config.scale_learning_rate})"
        )
    if processes > 1:
        share = (
            f"{processes} processes share the {rows:,} {unit_of(model)} of a step, about {rows // processes:,} for each"
        )
        yield Message(f"{share}; {rates}")
    elif config.rate_factor != 1:
        yield Message(rates)
