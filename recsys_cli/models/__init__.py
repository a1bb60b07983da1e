"""Torch modules; they know Schema and Batch, and nothing else. Importing this package does not import torch."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from recsys_cli.config import Placement
from recsys_cli.config.load import model_config
from recsys_cli.errors import ConfigError
from recsys_cli.plugins import require_subclass
from recsys_cli.registry import MODELS, lookup
from recsys_cli.registry import load as load_component

if TYPE_CHECKING:
    from recsys_cli.features.schema import Schema
    from recsys_cli.models.model import Model


def build(
    name: str,
    options: dict[str, Any],
    schema: Schema,
    *,
    sparse: bool = False,
    placement: Placement = "device",
) -> Model:
    """Build a model from its name and options, with weights drawn from torch's global generator.

    Args:
        name: As in `model.name` of a config: a registered name, or a package with `config.Config` and `model.Model`.
        options: The model's own options.
        schema: The prepared columns.
        sparse: Whether embedding tables shall have sparse gradients.
        placement: Where its embedding tables are kept.

    Raises:
        ConfigError: The model is not known, an option is wrong, it does not fit the columns, or it cannot keep its tables
            elsewhere than on its device.
        MissingExtraError: What it computes with is not installed.
    """
    try:
        config = model_config(name, options)
    except ValidationError as error:
        raise ConfigError(f"model {name}: {error}") from error
    kind = kind_of(name)
    parameters = inspect.signature(kind).parameters
    wanted = {"sparse": sparse, "placement": placement}
    if placement != "device" and "placement" not in parameters:
        raise ConfigError(
            f"model.embedding.placement is {placement}, and the model {name} keeps its tables on its device",
            hint="leave it out; or let the model's constructor take `placement` and give it to models.embedding.embed",
        )
    columns = kind.input_schema(config, schema)
    built: Model = kind(config, columns, **{key: value for key, value in wanted.items() if key in parameters})
    return built


def kind_of(name: str) -> type[Model]:
    """Return the class of a model.

    Args:
        name: As in `model.name` of a config.

    Raises:
        ConfigError: There is no such class, it is not trusted, or it is no Model.
        MissingExtraError: What it computes with is not installed.
    """
    from recsys_cli.models.model import Model  # torch, and this package is imported without

    path = f"{lookup(MODELS, name, what='model')}.model:Model"
    kind: type[Model] = load_component(path)
    require_subclass(kind, Model, path)
    return kind


def trained(model: Model) -> Model:
    """Return a model that is trained step by step.

    Raises:
        ConfigError: It learns all at once.
    """
    if model.rows == "all":
        name = type(model).__module__.split(".")[-2]
        raise ConfigError(f"{name} learns all at once, so there are no steps", hint="recsys train, without options")
    return model
