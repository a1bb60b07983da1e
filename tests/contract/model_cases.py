"""A small schema, batches of it, and who met what: what every model of the registry is tried with."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from recsys_cli.batch import Batch, Ragged
from recsys_cli.config.load import model_config_type
from recsys_cli.features.schema import Column, Kind, Role, Schema
from recsys_cli.interactions import Interactions
from recsys_cli.models import build
from recsys_cli.models.model import Model, TrainingContext
from recsys_cli.registry import MODELS, load

SIZES = {"user.id": 30, "item": 20, "keys": 8}
SCHEMA = Schema(
    columns=(
        Column(name="user.id", role=Role.USER, kind=Kind.CATEGORICAL, dtype="int32", cardinality=30, vocabulary="u"),
        Column(name="item", role=Role.ITEM, kind=Kind.CATEGORICAL, dtype="int32", cardinality=20, vocabulary="i"),
        Column(
            name="keys", role=Role.FEATURE, kind=Kind.CATEGORICAL, dtype="int32", cardinality=8, vocabulary="k", ragged=True
        ),
        Column(name="age", role=Role.FEATURE, kind=Kind.NUMERIC, dtype="float32"),
        Column(name="label", role=Role.LABEL, kind=Kind.NUMERIC, dtype="int8"),
        Column(name="time", role=Role.TIMESTAMP, kind=Kind.NUMERIC, dtype="int64"),
    )
)  # fmt: skip
SECONDS = Column(name="seconds", role=Role.LABEL, kind=Kind.NUMERIC, dtype="float32", task="regression")
OF_NUMBERS = Schema(columns=(*(column for column in SCHEMA.columns if column.role is not Role.LABEL), SECONDS))
"""The same with a label that is a number."""


def a_batch(num_rows: int = 64, *, seed: int = 0) -> Batch:
    draw = torch.Generator().manual_seed(seed)
    counts = torch.randint(0, 4, (num_rows,), generator=draw)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    ids = {n: torch.randint(0, SIZES[n], (num_rows,), generator=draw, dtype=torch.int32) for n in ("user.id", "item")}
    values = torch.randint(0, SIZES["keys"], (int(offsets[-1]),), generator=draw, dtype=torch.int32)
    features = {**ids, "keys": Ragged(values, offsets), "age": torch.randn(num_rows, generator=draw)}
    features["time"] = 100 + torch.arange(num_rows) * 2
    return Batch(features, {"label": torch.randint(0, 2, (num_rows,), generator=draw).float()})


def rows_of(batch: Batch, rows: list[int]) -> Batch:
    """Some rows of a batch, in the order asked for."""
    features = {}
    for name, feature in batch.features.items():
        if isinstance(feature, Ragged):
            lists = [feature.values[feature.offsets[row] : feature.offsets[row + 1]] for row in rows]
            offsets = torch.tensor([0, *[len(one) for one in lists]]).cumsum(0)
            features[name] = Ragged(torch.cat([feature.values[:0], *lists]), offsets)
        else:
            features[name] = feature[rows]
    return Batch(features, {name: label[rows] for name, label in batch.labels.items()})


def some_interactions(num_rows: int = 300, *, seed: int = 0) -> Interactions:
    """Rows of users and items with ids of their own, most of items that users of the same half like, in order of time."""
    draw = np.random.default_rng(seed)
    users = draw.integers(3, SIZES["user.id"], num_rows)
    own = draw.random(num_rows) < 0.8
    items = 3 + (draw.integers(0, 8, num_rows) * 2 + (users + ~own) % 2)
    labels = (draw.random(num_rows) < 0.7).astype(np.float32)
    return Interactions(users.astype(np.int32), items.astype(np.int32), labels, times=np.arange(num_rows))


def some_known(*, seed: int = 0, device: str = "cpu") -> TrainingContext:
    """Those interactions, and features of ids: keys of items, and numbers that follow from the user's id."""
    interactions = some_interactions(seed=seed)

    def join(ids):
        features = dict(ids)
        if "item" in ids:
            items = ids["item"].long()
            offsets = torch.arange(len(items) + 1, device=items.device)
            features["keys"] = Ragged((3 + items % 5).int(), offsets)
        if "user.id" in ids:
            features["age"] = (ids["user.id"].float() - 15) / 10
        return features

    ids = {"user.id": torch.from_numpy(interactions.user_idx), "item": torch.from_numpy(interactions.item_idx)}
    rows = Batch(join(ids), {"label": torch.from_numpy(interactions.labels)}).to(device)
    return TrainingContext(lambda: interactions, join, lambda: rows.parts(2))


def names_of(kind: type) -> list[str]:
    """Return the names of the registered models of a kind."""
    return names_where(lambda model: issubclass(model, kind))


def names_where(wanted: Callable[[type[Model]], bool]) -> list[str]:
    """Return the names of the registered models with some traits."""
    return sorted(name for name, model in MODELS.items() if wanted(load(model.model)))


def closed_form() -> list[str]:
    """Return the names of the models that learn all at once."""
    return names_where(lambda model: model.rows == "all")


def gradient_trained() -> list[str]:
    """Return the names of the models that learn step by step."""
    return names_where(lambda model: model.rows != "all")


def catalog_scorers() -> list[str]:
    """Return the names of the models with a way of their own to score the catalog."""
    return names_where(lambda model: model.scoring != "pairs")


def without_regularization(name: str) -> dict[str, float]:
    """Return the options of a model that let it learn rows by heart, where its defaults are meant to keep it from that."""
    fields = model_config_type(name).model_fields
    return {option: 0.0 for option in ("regularization", "dropout", "embedding_dropout") if option in fields}


def a_model(
    name: str,
    *,
    schema: Schema = SCHEMA,
    sparse: bool = False,
    torch_seed: int = 0,
    device: str = "cpu",
    **options: object,
) -> Model:
    """Build a model that has been told what is known, and fitted if it is one that is."""
    torch.manual_seed(torch_seed)
    model = build(name, options, schema, sparse=sparse).to(device)
    known = some_known(device=device)
    if model.rows == "all":
        model.fit(known)
    model.set_context(known)
    return model
