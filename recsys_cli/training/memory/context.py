"""Training context of a single batch."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from recsys_cli.batch import Batch, Feature
from recsys_cli.features.schema import Role, Schema
from recsys_cli.interactions import Interactions
from recsys_cli.loader.ragged import pick_lists
from recsys_cli.models.model import TrainingContext


def context_of_batch(batch: Batch, schema: Schema) -> TrainingContext:
    """Return a training context with the rows of a batch, on the CPU, as its interactions; sufficient for one step of any model.

    The features of an id are those of its first row; an id absent from the batch gets the features of row 0.
    """

    def interactions() -> Interactions:
        users, items = (_ids(batch, schema.only(role).name).int().numpy() for role in (Role.USER, Role.ITEM))
        return Interactions(
            users, items, batch.labels[schema.label.name].numpy(), times=torch.arange(len(users)).numpy()
        )

    def join(ids: Mapping[str, Tensor]) -> Mapping[str, Feature]:
        features: dict[str, Feature] = dict(ids)
        for key, key_ids in ids.items():
            rows = _first_rows(_ids(batch, key), key_ids)
            for column in schema.in_table(key):
                if column in schema.features:
                    features[column.name] = _pick(batch.features[column.name], rows)
        return features

    return TrainingContext(interactions, join)


def _ids(batch: Batch, name: str) -> Tensor:
    ids = batch.features[name]
    assert isinstance(ids, Tensor)
    return ids.long()


def _first_rows(ids: Tensor, queries: Tensor) -> Tensor:
    """Return the first row of each query id, 0 for an absent id; shape of `queries`."""
    size = int(torch.cat([ids, queries.long()]).max()) + 1
    first = torch.full((size,), len(ids)).scatter_reduce_(0, ids, torch.arange(len(ids)), "amin")
    return first[queries.long()] % len(ids)


def _pick(feature: Feature, rows: Tensor) -> Feature:
    if isinstance(feature, Tensor):
        return feature[rows]
    starts, lengths = feature.offsets[rows], feature.offsets.diff()[rows]
    return pick_lists(feature.values, starts, lengths, feature.values.dtype, feature.weights)
