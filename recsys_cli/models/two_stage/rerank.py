"""Re-ranking of one user's list: maximal marginal relevance, and limits for values of an item feature."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import PADDING, Role, Schema
from recsys_cli.models.collaborative.rows import as_lists
from recsys_cli.models.configs.two_stage import AtMost, Mmr
from recsys_cli.models.item_to_item import ItemToItemModel
from recsys_cli.models.model import Model
from recsys_cli.models.top_lists import rerank
from recsys_cli.models.two_stage.candidates import CandidateSource, Join

Ints = npt.NDArray[np.intp]
Order = Callable[[Tensor, Tensor], Ints]
"""From scores and encoded items of one user's candidates, best first, (N,) each, to their new order."""


def order_of(options: Mmr | AtMost, source: CandidateSource, join: Join, schema: Schema) -> Order:
    """Return the re-ranking of a config; after `set_context` of the source.

    Raises:
        ConfigError: The re-ranker does not fit the generator or the data.
    """
    if isinstance(options, AtMost):
        values = _values_of(options.feature, join, schema, source.device)
        return lambda _, items: _limited(options, [values[item] for item in items.tolist()])
    if options.by is None:
        content = torch.nn.functional.normalize(source.content_by_item, dim=1)
        if not content.shape[1]:
            raise ConfigError(
                "model.rerank: mmr needs similarities, and the items have no features",
                hint="set `by` to a generator such as ease, or join item features with JoinExternal in features.ops",
            )
        return lambda scores, items: _diverse(options, scores, content[items] @ content[items].T)
    generator = source.generators[options.by]
    return lambda scores, items: _diverse(options, scores, _similarities(generator, items[: options.pool]))


def check_features(rerankers: Sequence[Mmr | AtMost], schema: Schema) -> None:
    """Check the columns of the re-rankers against the prepared columns.

    Raises:
        ConfigError: A column is no categorical feature of items.
    """
    item = schema.only(Role.ITEM)
    tables = {item.name} if schema.tables else {None}  # the flat layout has one table
    known = {column.name for column in schema.categorical if column.role is Role.FEATURE and column.table in tables}
    for options in rerankers:
        if isinstance(options, AtMost) and options.feature not in known:
            raise _no_feature(options.feature, item.name)


def reordered(order: Order, scores: Tensor, row: Tensor, items: Tensor) -> Tensor:
    """Return scores for the new order of each user's candidates, falling strictly; (N,) each, rows ascending."""
    new = scores.clone()
    counts = torch.bincount(row).tolist() if len(row) else []
    for part in torch.arange(len(row), device=row.device).split(counts):
        best = part[scores[part].argsort(descending=True, stable=True)]
        if len(best):
            own = scores[best]
            new[best[torch.from_numpy(order(own, items[best])).to(row.device)]] = _falling(own)
    return new


def _falling(scores: Tensor) -> Tensor:
    """Return descending scores, with ties replaced by the next lower numbers."""
    values = scores.tolist()
    falling = np.array(values, np.float32)
    for place in range(1, len(falling)):
        falling[place] = min(falling[place], np.nextafter(falling[place - 1], np.float32(-np.inf)))
    return torch.from_numpy(falling).to(scores.device)


def _similarities(generator: Model, items: Tensor) -> Tensor:
    """Return cosines of item vectors, or item-item weights; (N,) to (N, N)."""
    if generator.scoring == "dot_product":
        vectors = torch.nn.functional.normalize(generator.item_vectors(items), dim=1)
        return vectors @ vectors.T
    if isinstance(generator, ItemToItemModel):
        return generator.weights_between(items, items)
    raise ConfigError(
        "model.rerank: by names a generator without item vectors and item-item weights",
        hint="name ease, item-knn or a model with vectors, or leave `by` out for item features",
    )


def _diverse(options: Mmr, scores: Tensor, similarities: Tensor) -> Ints:
    """Return the order by maximal marginal relevance of the best `pool`; the other candidates follow."""
    pool = min(options.pool, len(scores))
    between = similarities[:pool, :pool].cpu().numpy()
    chosen = rerank(scores[:pool].cpu().numpy(), between, k=options.top, diversity=options.diversity)
    return _with_rest(chosen, len(scores))


def _limited(options: AtMost, values: Sequence[Sequence[int]]) -> Ints:
    """Return the order under a limit; without enough other items, those over the limit fill the top.

    Args:
        options: The rule.
        values: Values of the feature of each candidate, best first.
    """
    counts: Counter[int] = Counter()
    chosen: list[int] = []
    for place, own in enumerate(values):
        if len(chosen) < options.top and all(counts[value] < options.number for value in own):
            chosen.append(place)
            counts.update(own)
    return _with_rest(np.array(chosen, np.intp), len(values))


def _values_of(feature: str, join: Join, schema: Schema, device: torch.device) -> list[list[int]]:
    """Return the values of a categorical item feature by encoded item.

    Raises:
        ConfigError: The column is no categorical feature of items.
    """
    item = schema.only(Role.ITEM)
    items = torch.arange(int(item.cardinality or 0), dtype=torch.int32, device=device)
    found = join({item.name: items}).get(feature)
    if found is None or feature == item.name or feature not in {column.name for column in schema.categorical}:
        raise _no_feature(feature, item.name)
    lists = as_lists(found)
    values, offsets = lists.values.tolist(), lists.offsets.tolist()
    return [[value for value in values[start:stop] if value != PADDING] for start, stop in pairwise(offsets)]


def _no_feature(feature: str, item: str) -> ConfigError:
    return ConfigError(
        f"model.rerank: {feature} is no categorical feature of {item}",
        hint="join it with JoinExternal and encode it with Categorify in features.ops",
    )


def _with_rest(chosen: Ints, number: int) -> Ints:
    return np.concatenate([chosen, np.setdiff1d(np.arange(number), chosen)])
