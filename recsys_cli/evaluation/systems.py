"""The systems of an evaluation, its model and the baselines, and their rankings: the same here and on a worker."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, partial

import torch

from recsys_cli.config import EvaluateConfig
from recsys_cli.evaluation.baselines import FittedCache, fit_baseline, ranking_baselines
from recsys_cli.evaluation.held_out import Ints, UserBlock
from recsys_cli.evaluation.loaded_run import make_context
from recsys_cli.evaluation.new_users import SplitByUser
from recsys_cli.evaluation.ranking import FoldInScorer, ModelScorer, Scorer, TemporaryIds, Top, rank_block
from recsys_cli.evaluation.result import MODEL
from recsys_cli.features.schema import Role
from recsys_cli.interactions import Interactions
from recsys_cli.loader import DimensionTables
from recsys_cli.models.model import Model, TrainingContext
from recsys_cli.models.top_lists import fill_cold_slots
from recsys_cli.workspace import PreparedData

Part = tuple[str, int, UserBlock]
"""The name of a system, a cut-off, and users to rank for."""
STAGE = "stage "  # the beginning of the name of a stage of the model
SLOTS = "cold slots "  # of the model with a number of them


@dataclass
class Systems:
    """The model, which is in `context`, its stages, and the baselines; `new_users` are the ranked cold-start ones, ascending."""

    model: Model
    data: PreparedData
    split: str
    by_user: SplitByUser
    new_users: Ints
    config: EvaluateConfig
    device: torch.device | str
    _baselines: dict[str, Model] = field(default_factory=dict, init=False)
    _scorer: tuple[str, Scorer] | None = field(default=None, init=False)
    _left: set[str] = field(default_factory=set, init=False)

    @cached_property
    def tables(self) -> DimensionTables:
        """The dimension tables on the device."""
        return DimensionTables(self.data, device=self.device)

    @cached_property
    def context(self) -> TrainingContext:
        """The context of rankings."""
        return self.context_of(self.by_user.before if self.by_user.num_folded else self.by_user.history)

    def context_of(self, rows: Interactions) -> TrainingContext:
        """Return the context of rows before the split's, without ids of cold-start users and cold items."""
        earlier = ("train", "valid") if self.split == "test" else ("train",)
        return make_context(self.data, *earlier, tables=self.tables, read=self.by_user.hidden(rows))

    def system(self, name: str) -> Model:
        """Return a system; a baseline is fitted, or read, at its first call."""
        if name == MODEL or name.startswith((STAGE, SLOTS)):
            return self.model if not name.startswith(STAGE) else self.model.stages[name.removeprefix(STAGE)].model
        if name not in self._baselines:
            schema, by_user = self.data.schema, self.by_user
            of_model, options = ranking_baselines(schema, self.config, self.data.rows("train"))[name]
            train = TrainingContext(lambda: by_user.hidden(by_user.train.observed()), self.tables.join)
            cache = FittedCache(self.data.folder / "baselines")
            self._baselines[name] = fit_baseline(
                of_model, options, schema, train, self.context, device=self.device, cache=cache
            )
        return self._baselines[name]

    def rank(self, part: Part) -> Top:
        """Rank for a block of users by a system."""
        name, cut_off, block = part
        if self._scorer is None or self._scorer[0] != name:
            system = self.system(name)
            if name in self._left or name.startswith((STAGE, SLOTS)):  # another ranking may have left other contexts
                system.set_context(self.context)
            self._left.add(name)
            self._scorer = name, self.scorer(system)
        adjust = None
        if name.startswith(SLOTS):
            is_cold = torch.from_numpy(self.by_user.cold.among(self.by_user.candidates)).to(self.device)
            adjust = partial(fill_cold_slots, is_cold=is_cold, slots=int(name.removeprefix(SLOTS)), k=cut_off)
        return rank_block(block, self._scorer[1], cut_off=cut_off, adjust=adjust)

    def scorer(self, system: Model) -> Scorer:
        """Return a scorer by the current weights of a system."""
        schema, by_user = self.data.schema, self.by_user
        candidates = torch.from_numpy(by_user.candidates).to(self.device)
        history = by_user.cold.hidden(by_user.history)
        temporary = TemporaryIds(self.new_users, history, schema.only(Role.USER).own_ids, self.tables.join)

        def make() -> Scorer:
            return ModelScorer(system, self.tables, schema, candidates, batch_size=self.config.batch_size)

        return FoldInScorer(system, make, by_user.new, temporary, self.context, candidates)
