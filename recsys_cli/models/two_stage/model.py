"""Candidates, ranker and re-rankers as one model with a full ranking of the catalog."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor, nn

from recsys_cli.batch import Batch
from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import FIRST, Role, Schema
from recsys_cli.interactions import Interactions
from recsys_cli.models import build
from recsys_cli.models.configs.two_stage import TwoStageConfig
from recsys_cli.models.interaction_matrix import InteractionMatrix
from recsys_cli.models.model import ClosedFormModel, Model, Progress, Stage, TrainingContext, no_progress, pair_ids
from recsys_cli.models.two_stage.candidates import Candidates, CandidateSource, ItemContent, ItemStatistics
from recsys_cli.models.two_stage.rankers import ranker_of
from recsys_cli.models.two_stage.rerank import Order, check_features, order_of, reordered
from recsys_cli.models.two_stage.targets import Fold, LabeledCandidates, folds_of, histories_of

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
        self.ranker = ranker_of(config.ranker, schema, lambda: self._source(self._models, self.statistics).names)
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
        self._fit_generators(self._models, self.statistics, self._part(context.interactions(), context), step)

    def training_rows(
        self, context: TrainingContext, step: Callable[[], None] = lambda: None
    ) -> LabeledCandidates | None:
        """Return the rows of the ranker: candidates of generators fitted without the targets; None without targets.

        Args:
            context: All of train.
            step: Called after each fitted generator.
        """
        parts: list[LabeledCandidates] = []
        for number, fold in enumerate(
            folds_of(context.interactions(), self.config.holdout, rounds=self.num_rounds, seed=self._seed)
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
