"""A loaded model with all that its answers need: from a run, or from a bundle."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recsys_cli.config import Placement, RunConfig
from recsys_cli.evaluation.held_out import by_train_rows
from recsys_cli.evaluation.loaded_run import config_of, earlier_splits, make_context, model_of, placement_of
from recsys_cli.evaluation.names import IdNames
from recsys_cli.evaluation.new_users import ColdItems
from recsys_cli.features.schema import Column, Role, Schema
from recsys_cli.interactions import Interactions
from recsys_cli.loader import DimensionTables
from recsys_cli.loader.interactions import count_items, read_observed
from recsys_cli.models.embedding import TableType, quantize_tables
from recsys_cli.models.model import Model
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.ops.vocabulary import VocabularyIndex
from recsys_cli.serving.histories import Histories, History, extended
from recsys_cli.serving.ids import IdIndex
from recsys_cli.serving.item_features import ItemFeatures
from recsys_cli.serving.query import RecentInteraction
from recsys_cli.workspace import PreparedData, TrainedRun, Workspace


@dataclass(frozen=True)
class ModelSource:
    """Name and options of a model, enough to build it again.

    Attributes:
        name: Value of `model.name`.
        options: Its own options.
        placement: Placement of the embedding tables.
        batch_size: Pairs scored at once; affects only memory.
        tables: Type of the embedding tables' rows.
        repeats: Whether seen items are recommended unless a request says otherwise (`evaluate.repeats`).
        cold_slots: As in `RecommendConfig`.
    """

    name: str
    options: Mapping[str, Any]
    placement: Placement
    batch_size: int
    tables: TableType = "fp32"
    repeats: bool = False
    cold_slots: int = 0

    @classmethod
    def of(cls, config: RunConfig) -> ModelSource:
        """Return the model of a config."""
        evaluate = config.evaluate
        return cls(
            config.model.name, config.model.options, placement_of(config), evaluate.batch_size, repeats=evaluate.repeats,
            cold_slots=config.recommend.cold_slots,
        )  # fmt: skip

    def excludes_seen(self, asked: bool | None) -> bool:
        """Return whether a request leaves out the items of the history; None for the model's own default."""
        return not self.repeats if asked is None else asked


@dataclass(frozen=True)
class ServedModel:
    """A model in evaluation mode on the CPU, with its catalog and the user histories.

    Attributes:
        called: Name of the run or the bundle.
        source: The model's name and options.
        model: The model, without a context.
        data: Schema, feature plan, vocabularies and dimension tables; rows are not read.
        users: Index of user ids.
        items: Index of item ids.
        counts: Train rows by encoded item, int64.
        histories: User histories; without users if they were left out.
        has_histories: Whether user histories are available.
        titles: Item titles in the order of `items.values`; None without titles.
        item_values: Raw values of items by joined column, without lists, in the order of `items.values`; None if unavailable.
        rows: Interactions of all users, for a model without fold-in; None for those of the histories.
        about: Manifest of the bundle.
        indexes: Indexes for `RowEncoder`; of a bundle, those of all vocabularies.
    """

    called: str
    source: ModelSource
    model: Model
    data: PreparedData
    users: IdIndex
    items: IdIndex
    counts: npt.NDArray[np.int64]
    histories: Histories
    has_histories: bool
    titles: pa.Array | None
    item_values: pa.Table | None = None
    rows: Callable[[], Interactions] | None = None
    about: Mapping[str, Any] = field(default_factory=dict)
    indexes: Mapping[str, VocabularyIndex] = field(default_factory=dict)

    @classmethod
    def of_run(
        cls,
        run: TrainedRun,
        workspace: Workspace,
        *,
        titles: pa.Array | None = None,
        item_values: pa.Table | None = None,
        only: Interactions | None = None,
        newest: bool = False,
    ) -> ServedModel:
        """Load a finished run, with the user histories of its evaluation; with `newest`, these have the held-out rows too.

        `only` has the interactions of the only users with requests, with times; None reads those of all users.

        Raises:
            MissingArtifactError: The run is not finished, or its prepared data is missing.
            DataError: A file is damaged.
        """
        config, data = config_of(run), workspace.data_of(run)
        earlier = earlier_splits(config, data, newest=newest)
        users, items = (index_of(data, role) for role in (Role.USER, Role.ITEM))
        return cls(
            called=run.folder.name,
            source=ModelSource.of(config),
            model=model_of(run, config, data),
            data=data,
            users=users,
            items=items,
            counts=count_items(data),
            histories=Histories.of(
                read_observed(data, *earlier, cold_items=True) if only is None else only,
                num_users=int(data.schema.only(Role.USER).cardinality or 0),
            ),
            has_histories=True,
            titles=titles,
            item_values=item_values,
            rows=None if only is None else make_context(data, *earlier).interactions,
            indexes=users.indexes(data.schema.only(Role.USER)) | items.indexes(data.schema.only(Role.ITEM)),
        )

    def with_tables(self, kind: TableType) -> ServedModel:
        """Return the model with quantized embedding tables; this one must not be used any more."""
        quantize_tables(self.model, kind)
        return replace(self, source=replace(self.source, tables=kind))

    @property
    def takes_histories(self) -> bool:
        """Whether the model scores a history of a request: by fold-in, or as a feature of rows."""
        return self.model.folds_in or self.model.timestamp is not None

    def have_history(self) -> npt.NDArray[np.bool_]:
        """Whether the stored history of each encoded user has an item of train; shape (users,)."""
        known = ~self.cold.among(self.histories.items)
        return np.diff(np.concatenate([[0], np.cumsum(known)])[self.histories.offsets]) > 0

    def history(
        self, user: int, recent: Sequence[RecentInteraction], encoded: npt.NDArray[np.int64] | None = None
    ) -> History:
        """Return the stored history of a user with recent interactions, oldest first; `encoded` has their items, if known."""
        stored = self.histories.of_user(user if 0 <= user < self.users.cardinality else -1)
        if not recent:
            return stored
        items = self.items.encode([one.item for one in recent]) if encoded is None else encoded
        return extended(self.histories, stored, recent, items, ticks=self.schema.ticks)

    def interactions(self) -> Interactions:
        """Return the interactions of all users."""
        return self.histories.interactions() if self.rows is None else self.rows()

    @cached_property
    def visible_interactions(self) -> Callable[[], Interactions]:
        """Returns the interactions of all users without cold items; the same function for all upserts."""
        rows, cold = self.rows or self.histories.interactions, self.cold  # not this object, which would keep its memory
        return lambda: cold.hidden(rows())

    @cached_property
    def schema(self) -> Schema:
        """Schema of the prepared columns."""
        return self.data.schema

    @cached_property
    def fitted(self) -> FittedPlan:
        """The fitted feature plan."""
        return FittedPlan.read(self.data.folder)

    @cached_property
    def by_train_rows(self) -> npt.NDArray[np.int64]:
        """Encoded items of train in tie-breaking order."""
        return by_train_rows(self.counts)

    @property
    def cold(self) -> ColdItems:
        """The cold items."""
        return ColdItems.listed(self.items.cardinality, self.items.values.slice(self.items.num_train))

    @cached_property
    def tables(self) -> DimensionTables:
        """The dimension tables."""
        return DimensionTables(self.data)

    @cached_property
    def features(self) -> ItemFeatures:
        """Raw feature values of items."""
        return ItemFeatures(self.data)

    @property
    def user(self) -> Column:
        """The user column."""
        return self.schema.only(Role.USER)

    @property
    def item(self) -> Column:
        """The item column."""
        return self.schema.only(Role.ITEM)


def index_of(data: PreparedData, role: Role) -> IdIndex:
    """Return the index of the raw user or item ids of prepared data."""
    return IdIndex.of(**vars(IdNames(data).ids(role)))
