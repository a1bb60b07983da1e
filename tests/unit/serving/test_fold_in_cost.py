"""The cost of a fold-in: memory does not grow with the users of train."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from recsys_cli.features.schema import FIRST
from recsys_cli.models import build
from recsys_cli.serving.query import Query
from recsys_cli.serving.recommender import Recommender
from recsys_cli.serving.served import ServedModel

USERS = 5_000_000


class Largest(TorchDispatchMode):
    """The largest number of elements in a result of torch."""

    numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        sizes = [one.numel() for one in tree_leaves(result) if isinstance(one, torch.Tensor)]
        self.numel = max([self.numel, *sizes])
        return result


def with_many_users(served: ServedModel) -> ServedModel:
    """Return the model for a schema with 5 million users; only the first ones have a history."""
    cardinality = FIRST + USERS
    columns = (
        one.model_copy(update={"cardinality": cardinality}) if one == served.user else one
        for one in served.schema.columns
    )
    schema = served.schema.model_copy(update={"columns": tuple(columns)})
    model = build(served.source.name, dict(served.source.options), schema).eval()
    model.load_state_dict(served.model.state_dict())
    offsets = np.full(cardinality + 1, served.histories.offsets[-1])
    offsets[: len(served.histories.offsets)] = served.histories.offsets
    users = replace(served.users, cardinality=cardinality)
    many = replace(served, model=model, users=users, histories=replace(served.histories, offsets=offsets))
    many.__dict__["schema"] = schema
    return many


@pytest.mark.parametrize("name", ["ease", "ials", "sasrec", "item-knn"])
def test_a_fold_in_allocates_nothing_per_user_of_train(name: str, recommenders: Callable[[str], Recommender]) -> None:
    recommender = Recommender(with_many_users(recommenders(name).served))
    queries = [Query(history=[1, 3, 5], k=5)]
    expected = [one.item.id for one in recommenders(name).recommend(queries)[0].items]
    with Largest() as largest:
        recommender.recommend(queries)  # imports of torch's dispatch too
        tracemalloc.start()
        (answer,) = recommender.recommend(queries)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert answer.source == "fold-in"
    assert [one.item.id for one in answer.items] == expected
    assert largest.numel < USERS / 10
    assert peak < USERS / 2  # bytes
