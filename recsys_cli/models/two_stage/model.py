"""Candidates, ranker and re-rankers as one model with a full ranking of the catalog."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from recsys_cli.batch import Batch
from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import FIRST, PADDING, Role, Schema
from recsys_cli.interactions import Interactions
from recsys_cli.models import build
from recsys_cli.models.collaborative.rows import as_lists
from recsys_cli.models.configs.two_stage import AtMost, Mmr, TwoStageConfig
from recsys_cli.models.interaction_matrix import InteractionMatrix
from recsys_cli.models.item_to_item import ItemToItemModel
from recsys_cli.models.model import ClosedFormModel, Model, Progress, Stage, TrainingContext, no_progress, pair_ids
from recsys_cli.models.top_lists import rerank
from recsys_cli.models.two_stage.candidates import Candidates, CandidateSource, ItemContent, ItemStatistics, Join
from recsys_cli.models.two_stage.rankers import Fold, LabeledCandidates, folds_of, histories_of, ranker_of

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
    """Return the order under a limit, by values of the best candidate first; without enough others, those over it fill the top."""
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


_ROUNDS = 4
"""Hold-outs for generators without gradient training."""


class TwoStage(ClosedFormModel):
    """Ranks the union of the generators' candidates by a ranker, and all other items behind them by the first generator.

    The ranker learns from hold-outs of train: its features are those of generators fitted without the held-out rows, its
    positives are the candidates among them, its negatives the other candidates. Then the generators are fitted to all of
    train. Seen items are no candidates.

    Raises:
        ConfigError: A generator cannot score the catalog, or a part does not fit the data.
    """

    scoring = "catalog"
    folds_in = True
    ranks_without_history = True
    ranks_seen_last = True

    def __init__(self, config: TwoStageConfig, schema: Schema) -> None:
        super().__init__()
        self.config, self.schema = config, schema
        self.user, self.item = schema.only(Role.USER), schema.only(Role.ITEM)
        check_features(config.rerank, schema)
        self._seed = int(torch.randint(2**31 - 1, ()))
        self.generators = nn.ModuleList(self._build(name) for name in config.generators)
        weighted = any("features.weight" in generator.loss_options for generator in self._models.values())
        self.loss_options = frozenset({"features.weight"} if weighted else ())
        self.folds_in = all(generator.folds_in for generator in self._models.values())
        self.statistics = self._new_statistics()
        self._content = ItemContent(schema, max_categories=config.max_categories)
        self.ranker = ranker_of(config.ranker, schema, self._source(self._models, self.statistics).num_features)
        self._ready: CandidateSource | None = None
        self._orders: list[Order] = []

    @property
    def _models(self) -> dict[str, Model]:
        return dict(zip(self.config.generators, self.generators, strict=True))  # type: ignore[arg-type]

    def _build(self, name: str) -> Model:
        part = self.config.generators[name]
        generator = build(part.name, part.options, self.schema, sparse=part.training.sparse_embeddings)
        if generator.scoring == "pairs":
            raise ConfigError(
                f"model.candidates: {name} scores pairs, not the catalog",
                hint="choose retrieval, sequence or closed-form models (recsys ls models)",
            )
        if unused := [one for one in generator.unused_options(part.training, self.schema) if one != "features.weight"]:
            raise ConfigError(
                f"model.candidates: {name} has {', '.join(unused)}, without effect on {part.name}", hint="remove it"
            )
        return generator

    def _new_statistics(self) -> ItemStatistics:
        return ItemStatistics(int(self.item.cardinality or 0), ticks=self.schema.ticks).to(self.device)

    def _source(self, generators: Mapping[str, Model], statistics: ItemStatistics) -> CandidateSource:
        numbers = [generator.k for generator in self.config.generators.values()]
        return CandidateSource(generators, numbers, statistics, self._content, self.user, self.item, self.device)

    @property
    def num_rounds(self) -> int:
        """Number of hold-outs: more where the generators are fitted fast."""
        closed_form = all(generator.rows == "all" for generator in self._models.values())
        return self.config.holdout.rounds or (_ROUNDS if closed_form else 1)

    def fit(self, context: TrainingContext, *, progress: Progress = no_progress) -> None:
        """Fit the ranker to candidates of hold-outs, and the generators to all of train."""
        rounds = 0 if self.ranker is None else self.num_rounds
        total, done = (rounds + 1) * len(self.generators), 0

        def step() -> None:
            nonlocal done
            done += 1
            progress(min(done, total), total)

        progress(0, total)
        if self.ranker is not None and (rows := self.training_rows(context, step)) is not None:
            self.ranker.fit(rows, context)
        self._fit_generators(self._models, self.statistics, self._part(context.interactions().counted(), context), step)

    def training_rows(
        self, context: TrainingContext, step: Callable[[], None] = lambda: None
    ) -> LabeledCandidates | None:
        """Return the rows of the ranker: candidates of generators fitted without the targets; None without targets."""
        parts: list[LabeledCandidates] = []
        for number, fold in enumerate(
            folds_of(context.interactions().counted(), self.config.holdout, rounds=self.num_rounds, seed=self._seed)
        ):
            with torch.random.fork_rng():
                torch.manual_seed(self._seed)
                generators = {name: self._build(name).to(self.device) for name in self.config.generators}
                source, part = self._source(generators, self._new_statistics()), self._part(fold.fit, context)
                self._fit_generators(generators, source.statistics, part, step)
            for generator in generators.values():
                generator.eval()
            source.set_context(part)
            first = FIRST + number * int(self.user.cardinality or 0)
            if (labeled := self._labeled(source, fold, first=first)) is not None:
                parts.append(labeled)
        return LabeledCandidates.concatenated(parts) if parts else None

    def _part(self, rows: Interactions, context: TrainingContext) -> TrainingContext:
        """Return the context of some rows of train."""

        def batches() -> tuple[Batch]:
            ids = {self.user.name: rows.user_idx, self.item.name: rows.item_idx}
            features = context.join({name: torch.tensor(values, device=self.device) for name, values in ids.items()})
            weight = None if rows.weights is None else torch.tensor(rows.weights, device=self.device)
            return (Batch(features, {self.schema.label.name: torch.tensor(rows.labels, device=self.device)}, weight),)

        return TrainingContext(lambda: rows, context.join, batches, context.train)

    def _fit_generators(
        self,
        generators: Mapping[str, Model],
        statistics: ItemStatistics,
        context: TrainingContext,
        step: Callable[[], None],
    ) -> None:
        statistics.fit(context.interactions())
        for name, generator in generators.items():
            if generator.rows == "all":
                generator.fit(context)
            else:
                context.train(generator, self.config.generators[name].training, context, self.schema)
            step()

    def _labeled(self, source: CandidateSource, fold: Fold, *, first: int) -> LabeledCandidates | None:
        """Return the candidates of users with a positive target, as lists with numbers from `first`; None without any."""
        targets = InteractionMatrix.of(fold.targets, self.user, self.item, positive_only=True, device=self.device)
        pairs = targets.users * targets.num_items + targets.items
        users, catalog = targets.offsets.diff().nonzero().flatten(), source.catalog
        draw = torch.Generator(self.device).manual_seed(self._seed)
        blocks = []
        for span, candidates in source.blocks(users):
            items, row = catalog[candidates.column], candidates.row
            labels = torch.isin(users[span][row] * targets.num_items + items, pairs)
            keep = self._kept(row, labels, torch.rand(len(row), generator=draw, device=self.device))
            group = row[keep] + first + span.start
            blocks.append((items[keep], candidates.features[keep], labels[keep].float(), group))
        if not any(len(items) for items, *_ in blocks):  # no target is among the candidates
            return None
        items, features, labels, group = (torch.cat(column) for column in zip(*blocks, strict=True))
        return LabeledCandidates(items, features, labels, group, histories_of(fold.fit, users, first=first))

    def _kept(self, row: Tensor, labels: Tensor, chance: Tensor) -> Tensor:
        """Return the mask of rows for training: of lists with a positive, its positives and sampled negatives."""
        has_positive = torch.zeros(len(row) + 1, dtype=torch.bool, device=row.device)
        has_positive[row[labels]] = True
        keep = has_positive[row]
        if self.config.negatives is not None:
            order = torch.argsort(row + chance.masked_fill(labels, 1.0) / 2)  # positives of a list follow its negatives
            starts = torch.searchsorted(row, row)
            place = torch.empty_like(row)
            place[order] = torch.arange(len(row), device=row.device) - starts
            keep &= labels | (place < self.config.negatives)
        return keep

    def set_context(self, context: TrainingContext) -> None:
        """Set the user histories of generators, features and ranker."""
        self._ready = self._source(self._models, self.statistics)
        self._ready.set_context(context)
        if self.ranker is not None:
            self.ranker.set_context(context)
        self._orders = [order_of(options, self._ready, context.join, self.schema) for options in self.config.rerank]

    def limit_users(self, num_ids: int) -> None:
        """Limit the user ids of all generators."""
        super().limit_users(num_ids)
        for generator in self._models.values():
            generator.limit_users(num_ids)

    @property
    def stages(self) -> Mapping[str, Stage]:
        """The generators; with re-rankers, the ranker before them."""
        generators = self.config.generators
        stages = {name: Stage(one, generators[name].k) for name, one in self._models.items()}
        if not self.config.rerank:
            return stages
        ranked = copy.copy(self)  # shares all parts
        ranked.config = self.config.model_copy(update={"rerank": ()})
        ranked._orders = []
        return {**stages, "ranker": Stage(ranked)}

    def score(self, batch: Batch) -> Tensor:
        """Return the score of each row in the full ranking of its user, shape (B,)."""
        users, items = pair_ids(batch, self.user, self.item)
        distinct, index = torch.unique(users, return_inverse=True)
        scores = torch.zeros(len(users), device=users.device)
        for span, full, places in self._rankings(distinct):
            mine = (index >= span.start) & (index < span.stop)
            scores[mine] = full[index[mine] - span.start, places[items[mine]]]
        return scores

    def scores(self, users: Tensor, items: Tensor) -> Tensor:
        """Return the scores of users for items in their full rankings, shape (U, I)."""
        scores = torch.zeros(len(users), len(items), device=users.device)
        for span, full, places in self._rankings(users.long()):
            scores[span] = full[:, places[items]]
        return scores

    def _rankings(self, users: Tensor) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Yield blocks of users with their scores of the catalog and one lower score, and the column of each item."""
        assert self._ready is not None, "call set_context first"
        catalog = self._ready.catalog
        places = torch.full((int(self.item.cardinality or 0),), -1, device=self.device)
        places[catalog] = torch.arange(len(catalog), device=self.device)
        for span, candidates in self._ready.blocks(users):
            yield span, self._full(users[span], candidates, catalog), places

    def _full(self, users: Tensor, candidates: Candidates, catalog: Tensor) -> Tensor:
        """Return the scores of the catalog, candidates first, and a lower one for all other items; shape (U, I + 1)."""
        row, column, features = candidates.row, candidates.column, candidates.features
        items, ranker = catalog[column], self.ranker
        scores = features[:, 0].clone() if ranker is None else ranker.score(users[row], items, features)
        for order in self._orders:
            scores = reordered(order, scores, row, items)
        num_users = len(candidates.fallback)
        lowest = torch.zeros(num_users, device=row.device).scatter_reduce_(
            0, row, scores, "amin", include_self=False
        ).unsqueeze(1)  # fmt: skip
        full = torch.cat([lowest - 1 + candidates.fallback, lowest - 3], dim=1)
        full[row, column] = scores
        return full
