"""Recommendation models as torch modules over Schema and Batch. Importing this package does not import torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from recsys_cli.config import Placement
from recsys_cli.config.document import Document
from recsys_cli.config.load import model_config
from recsys_cli.config.problems import describe
from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import Role
from recsys_cli.plugins import guard_class, guarded, require_subclass
from recsys_cli.registry import find_model
from recsys_cli.registry import load as load_component

if TYPE_CHECKING:
    from recsys_cli.features.schema import Schema
    from recsys_cli.models.model import Model


def build(
    name: str, options: dict[str, Any], schema: Schema, *, sparse: bool = False, placement: Placement = "device"
) -> Model:
    """Build a model from its name and options; weights come from torch's global generator.

    An unregistered name is that of a package with `config.Config` and `model.Model`.

    Raises:
        ConfigError: The model is unknown, an option is wrong, the columns do not fit, or the model does not support the
            placement.
        MissingExtraError: A required library is not installed.
    """
    from recsys_cli.models.embedding import table_options  # torch, and this package is imported without

    try:
        config = model_config(name, options)
    except ValidationError as error:
        problems = "; ".join(describe(error, None, Document(options)))
        raise ConfigError(f"model {name}: {problems}") from error
    kind = kind_of(name)
    if placement not in kind.placements:
        raise ConfigError(
            f"model.embedding.placement is {placement}, but the model {name} supports only {' and '.join(kind.placements)}",
            hint=f"set model.embedding.placement={kind.placements[-1]}",
        )
    if sparse and kind.dense_gradients:
        raise ConfigError(
            f"{name} changes all embeddings in every step, so gradients of its tables are dense",
            hint="set train.sparse_embeddings=false",
        )
    columns = kind.input_schema(config, schema)
    with (
        table_options(sparse=sparse, placement=placement),
        guarded(f"the model {name} ended the process", of=SystemExit),
    ):
        built = kind(config, columns)
    built.name = name
    if wanted := getattr(config, "cold_items", None):
        from recsys_cli.models.sequence.model import item_columns

        built.cold_columns = item_columns(schema, schema.only(Role.ITEM), wanted, option="cold_items")
    return built


def kind_of(name: str) -> type[Model]:
    """Return the class of a model by `model.name`.

    Raises:
        ConfigError: The class does not exist, is not trusted, or is no Model.
        MissingExtraError: A required library is not installed.
    """
    from recsys_cli.models.model import Model

    path = find_model(name).model
    kind: type[Model] = load_component(path)
    require_subclass(kind, Model, path)
    guard_class(kind, f"the model {name} ended the process", of=SystemExit)
    return kind
