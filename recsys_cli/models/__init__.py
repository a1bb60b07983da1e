"""Torch modules; they know Schema and Batch, and nothing else. Importing this package does not import torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from recsys_cli.config.load import model_config
from recsys_cli.errors import ConfigError
from recsys_cli.registry import MODELS
from recsys_cli.registry import load as load_component

if TYPE_CHECKING:
    from recsys_cli.features.schema import Schema
    from recsys_cli.models.model import Model


def build(name: str, options: dict[str, Any], schema: Schema, *, sparse: bool = False) -> Model:
    """Build a model from its name and options, with weights drawn from torch's global generator.

    Args:
        name: As in `model.name` of a config: a registered name, or a package with `config.Config` and `model.Model`.
        options: The model's own options.
        schema: The prepared columns.
        sparse: Whether embedding tables shall have sparse gradients.

    Raises:
        ConfigError: The model is not known, an option is wrong, or it does not fit the columns.
    """
    try:
        config = model_config(name, options)
    except ValidationError as error:
        raise ConfigError(f"model {name}: {error}") from error
    built: Model = load_component(f"{MODELS.get(name, name)}.model:Model")(config, schema, sparse=sparse)
    return built
