"""The context of a single batch: enough for a step of any model."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from recsys_cli.batch import Batch, Feature, Ragged
from recsys_cli.features.schema import Role, Schema
from recsys_cli.interactions import Interactions
from recsys_cli.models.model import TrainingContext


def context_of_batch(batch: Batch, schema: Schema) -> TrainingContext:
    """Return the rows of a batch as the only interactions, and of each id the features that its first row has.

    Ids that are not in the batch get the features of its first row.

    Args:
        batch: With labels, on the CPU.
        schema: Names the columns.
    """

    def interactions() -> Interactions:
        users, items = (_ids(batch, schema.only(role).name).int().numpy() for role in (Role.USER, Role.ITEM))
        return Interactions(
            users, items, batch.labels[schema.label.name].numpy(), times=torch.arange(len(users)).numpy()
        )

    def join(ids: Mapping[str, Tensor]) -> Mapping[str, Feature]:
        found: dict[str, Feature] = dict(ids)
        for key, wanted in ids.items():
            rows = _first_rows(_ids(batch, key), wanted)
            for column in schema.in_table(key):
                if column in schema.features:
                    found[column.name] = _pick(batch.features[column.name], rows)
        return found

    return TrainingContext(interactions, join)


def _ids(batch: Batch, name: str) -> Tensor:
    ids = batch.features[name]
    assert isinstance(ids, Tensor)
    return ids.long()


def _first_rows(ids: Tensor, wanted: Tensor) -> Tensor:
    """Return the first row of each wanted id, 0 where there is none; shape as wanted."""
    size = int(torch.cat([ids, wanted.long()]).max()) + 1
    first = torch.full((size,), len(ids)).scatter_reduce_(0, ids, torch.arange(len(ids)), "amin")
    return first[wanted.long()] % len(ids)


def _pick(feature: Feature, rows: Tensor) -> Feature:
    if isinstance(feature, Tensor):
        return feature[rows]
    starts, lengths = feature.offsets[rows], feature.offsets.diff()[rows]
    offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    places = torch.arange(int(offsets[-1])) + (starts - offsets[:-1]).repeat_interleave(lengths)
    weights = None if feature.weights is None else feature.weights[places]
    return Ragged(feature.values[places], offsets, weights)
