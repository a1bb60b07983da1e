"""Candidates of several generators with their scores, and the features of candidate items."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from recsys_cli.batch import Feature
from recsys_cli.features.schema import PADDING, Column, Kind, Role, Schema
from recsys_cli.interactions import Interactions
from recsys_cli.models.collaborative.rows import as_lists
from recsys_cli.models.interaction_matrix import InteractionMatrix
from recsys_cli.models.item_to_item import add_rows, rows_of
from recsys_cli.models.model import Model, TrainingContext
from recsys_cli.models.top_lists import top_places

BLOCK = 128
"""Users scored at once; affects only memory and speed."""
_FUSION = 60
"""Constant of reciprocal rank fusion (Cormack et al., 2009)."""
_RECENT = 0.1
"""Share of the rows that count as recent."""
_PRIOR = 10.0
"""Rows with the mean label in an item's share of positives."""
Join = Callable[[Mapping[str, Tensor]], Mapping[str, Feature]]


@dataclass(frozen=True)
class Candidates:
    """Candidates of U users as N pairs, ordered by user.

    Attributes:
        row: Index of the user, shape (N,).
        column: Index of the item in the catalog, shape (N,).
        features: Shape (N, F), float32; the first column is the reciprocal rank fusion.
        fallback: Score of each item for the order behind the candidates, in [-1, 0]; shape (U, I).
    """

    row: Tensor
    column: Tensor
    features: Tensor
    fallback: Tensor


@dataclass
class CandidateSource:
    """Generators, item statistics and user histories: everything behind candidates and their features.

    Attributes:
        generators: Fitted models by name.
        k: Candidates of each generator.
        statistics: Statistics of the rows that the generators were fitted to.
        content: Columns of the item table.
        user: The user column.
        item: The item column.
        device: Device of the generators.
        content_by_item: Categories by encoded item, after `set_context`; shape (items, V).
    """

    generators: Mapping[str, Model]
    k: Sequence[int]
    statistics: ItemStatistics
    content: ItemContent
    user: Column
    item: Column
    device: torch.device
    _seen: InteractionMatrix = field(init=False)
    _items: Tensor = field(init=False)
    content_by_item: Tensor = field(init=False)

    def set_context(self, context: TrainingContext) -> None:
        """Set the user histories of all generators."""
        for generator in self.generators.values():
            generator.set_context(context)
        self._seen = InteractionMatrix.of(context.interactions(), self.user, self.item, device=self.device)
        self._items = self.content.matrix(context.join, self.device)
        self.content_by_item = self._items[:, : self.content.num_categories].contiguous()

    @property
    def catalog(self) -> Tensor:
        """Encoded items that may be candidates: those with a row in train and an id of their own; shape (I,)."""
        own = self.item.own_ids
        return self.statistics.counts[own.start : own.stop].nonzero().flatten() + own.start

    @property
    def num_features(self) -> int:
        """F: the fusion, three of each generator, those of the items, and three of the user and the pair."""
        return 4 + 3 * len(self.generators) + len(self.statistics.names) + self.content.num_columns

    def blocks(self, users: Tensor) -> Iterator[tuple[slice, Candidates]]:
        """Yield the candidates of blocks of users, shape (U,), with their places."""
        for start in range(0, len(users), BLOCK):
            span = slice(start, min(start + BLOCK, len(users)))
            yield span, self.of(users[span])

    def of(self, users: Tensor) -> Candidates:
        """Return the candidates of users: the union of the best unseen items of each generator."""
        catalog = self.catalog
        scores = [generator.scores(users, catalog).float() for generator in self.generators.values()]
        free = self._free(users, catalog)
        member = torch.zeros_like(free)
        ends = []
        for values, k in zip(scores, self.k, strict=True):
            hidden = values.masked_fill(~free, -torch.inf)
            best = top_places(hidden, k)  # ties as in the evaluation of each generator
            member.scatter_(1, best, True)
            ends.append(_ends(hidden.gather(1, best)))
        row, column = (member & free).nonzero(as_tuple=True)
        columns = []
        fusion = torch.zeros(len(row), device=self.device)
        for values, (top, last) in zip(scores, ends, strict=True):
            of_pair = values[row, column]
            rank = _ranks(row, of_pair, len(users))
            fusion += 1 / (_FUSION + rank)
            relative = ((of_pair - last[row]) / (top - last)[row].clamp(min=1e-12)).clamp(-10, 10)
            columns += [of_pair.sign() * of_pair.abs().log1p(), relative, rank.log()]
        return Candidates(
            row, column, self._features(users, catalog, row, column, [fusion, *columns]), _between(scores[0])
        )

    def _features(
        self, users: Tensor, catalog: Tensor, row: Tensor, column: Tensor, columns: Sequence[Tensor]
    ) -> Tensor:
        items = catalog[column]
        history = self._seen.of_users(users)
        lengths = history.offsets.diff()
        divisor = lengths.clamp(min=1).unsqueeze(1)
        popularity = torch.zeros(len(users), device=self.device).index_add_(
            0, rows_of(history), self.statistics.values[history.values, 0]
        )
        of_user = torch.stack([lengths.float().log1p(), popularity / divisor.flatten()], dim=1)
        content = self.content_by_item
        profile = add_rows(content, history) / divisor if content.shape[1] else content[users[:0]]
        similar = (profile[row] * content[items]).sum(1, keepdim=True) if len(profile) else of_user[row, :1] * 0
        parts = [torch.stack(list(columns), dim=1), self.statistics.values[items], of_user[row], similar]
        return torch.cat([*parts, self._items[items]], dim=1).float()

    def _free(self, users: Tensor, catalog: Tensor) -> Tensor:
        """Return the mask of unseen items, shape (U, I)."""
        places = torch.full((int(self.item.cardinality or 0),), -1, device=self.device)
        places[catalog] = torch.arange(len(catalog), device=self.device)
        history = self._seen.of_users(users)
        column = places[history.values]
        free = torch.ones(len(users), len(catalog), dtype=torch.bool, device=self.device)
        free[rows_of(history)[column >= 0], column[column >= 0]] = False
        return free


def _ends(best: Tensor) -> tuple[Tensor, Tensor]:
    """Return the highest and the lowest finite score of each list, best first with minus infinity at the end; 0 without any."""
    if not best.shape[1]:
        return best.new_zeros(len(best)), best.new_zeros(len(best))
    lowest = best.masked_fill(best.isinf(), torch.inf).amin(dim=1)
    return best[:, 0].nan_to_num(neginf=0.0), lowest.nan_to_num(posinf=0.0)


def _ranks(row: Tensor, scores: Tensor, num_users: int) -> Tensor:
    """Return the rank, from 1, of each pair among those of its user, by falling score; ties in order."""
    order = scores.argsort(descending=True, stable=True)
    order = order[row[order].argsort(stable=True)]
    counts = torch.bincount(row, minlength=num_users)
    starts = counts.cumsum(0) - counts
    ranks = torch.empty(len(row), device=row.device)
    ranks[order] = (torch.arange(len(row), device=row.device) - starts[row] + 1).float()
    return ranks


def _between(scores: Tensor) -> Tensor:
    """Scale the scores of each user to [-1, 0]."""
    if not scores.shape[1]:
        return scores
    top, low = scores.amax(1, keepdim=True), scores.amin(1, keepdim=True)
    return (scores - top) / (top - low).clamp(min=1e-12)


class ItemStatistics(nn.Module):
    """Popularity, recency and positives of items in the rows of `fit`, by encoded item; part of the weights.

    Attributes:
        names: Name of each column.
    """

    names = (
        "popularity", "recent popularity", "trend", "days since the last row", "days since the first row",
        "positives", "recent positives", "share of positives",
    )  # fmt: skip
    values: Tensor
    counts: Tensor

    def __init__(self, num_items: int, *, ticks: int) -> None:
        super().__init__()
        self._ticks = ticks
        self.register_buffer("values", torch.zeros(num_items, len(self.names)))
        self.register_buffer("counts", torch.zeros(num_items, dtype=torch.int64))

    def fit(self, rows: Interactions) -> None:
        """Count rows, and the latest tenth of them; in data without times all are equally recent."""
        size = len(self.counts)
        positive = rows.positive
        counts, positives = self._counts(rows.item_idx), self._counts(rows.item_idx[positive])
        recent, recent_positives, ages = counts, positives, np.zeros((size, 2))
        if rows.times is not None and len(rows):
            times = rows.times.astype(np.float64)
            latest = times >= np.quantile(times, 1 - _RECENT)
            recent, recent_positives = (self._counts(rows.item_idx[part]) for part in (latest, latest & positive))
            last, first = np.full(size, times.min()), np.full(size, times.max())
            np.maximum.at(last, rows.item_idx, times)
            np.minimum.at(first, rows.item_idx, times)
            ages = np.log1p((times.max() - np.stack([last, first], axis=1)) / (86_400 * self._ticks))
        share = (positives + _PRIOR * positive.sum() / max(1, len(rows))) / (counts + _PRIOR)
        columns = [
            np.log1p(counts), np.log1p(recent), np.log1p(recent) - np.log1p(_RECENT * counts), *ages.T,
            np.log1p(positives), np.log1p(recent_positives), share,
        ]  # fmt: skip
        self.values.copy_(torch.from_numpy(np.stack(columns, axis=1)))
        self.counts.copy_(torch.from_numpy(counts))

    def _counts(self, items: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        return np.bincount(items, minlength=len(self.counts))


class ItemContent:
    """Categories and numbers of the items' dimension table.

    Columns of the interactions are absent: a candidate has no row. So statistics of labels, which are computed by row, are too.
    """

    def __init__(self, schema: Schema, *, max_categories: int) -> None:
        self._item = schema.only(Role.ITEM)
        columns = [each for each in schema.in_table(self._item.name) if each.role is Role.FEATURE]
        self._categorical = [
            each for each in columns if each.kind is Kind.CATEGORICAL and int(each.cardinality or 0) <= max_categories
        ]
        self._numeric = [each for each in columns if each.kind is Kind.NUMERIC and not each.ragged]
        self.num_categories = sum(int(each.cardinality or 0) for each in self._categorical)
        self.num_columns = self.num_categories + len(self._numeric)

    def matrix(self, join: Join, device: torch.device) -> Tensor:
        """Return the columns by encoded item, float32; categories are shares of the item's values."""
        size = int(self._item.cardinality or 0)
        if not self.num_columns:
            return torch.zeros(size, 0, device=device)
        features = join({self._item.name: torch.arange(size, dtype=torch.int32, device=device)})
        parts = [_shares(features[each.name], each) for each in self._categorical]
        parts += [_numbers(features[each.name]) for each in self._numeric]
        return torch.cat(parts, dim=1)


def _shares(feature: Feature, column: Column) -> Tensor:
    """Return the share of each category among the values of each row, without padding; shape (N, cardinality)."""
    lists = as_lists(feature)
    counts = torch.zeros(len(lists.offsets) - 1, int(column.cardinality or 0), device=lists.values.device)
    counts[rows_of(lists), lists.values.long()] = 1
    counts[:, PADDING] = 0
    return counts / counts.sum(dim=1, keepdim=True).clamp(min=1)


def _numbers(feature: Feature) -> Tensor:
    assert isinstance(feature, Tensor)
    return feature.float().unsqueeze(1)
