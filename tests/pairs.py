"""Interactions and the schema of their two ids, for tests that need no other columns."""

from __future__ import annotations

import numpy as np

from recsys_cli.features.schema import Column, Kind, Role, Schema
from recsys_cli.interactions import Interactions


def ids(name: str, role: Role, cardinality: int) -> Column:
    """A column of ids."""
    return Column(name=name, role=role, kind=Kind.CATEGORICAL, dtype="int32", cardinality=cardinality, vocabulary=name)


def schema_of_pairs(users: int, items: int) -> Schema:
    """The columns user and item with so many ids each, the shared ones included."""
    return Schema(columns=(ids("user", Role.USER, users), ids("item", Role.ITEM, items)))


def interactions(*rows: tuple[float, ...], mean: float | None = None) -> Interactions:
    """Rows of user, item, label, and a time if they have one."""
    users, items, labels, *times = np.array(rows, float).T if rows else np.empty((3, 0))
    when = times[0].astype(np.int64) if times else None
    return Interactions(
        users.astype(np.int32), items.astype(np.int32), labels.astype(np.float32), times=when, mean=mean
    )
