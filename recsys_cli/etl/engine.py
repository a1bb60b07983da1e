"""What an engine has to do, and which one `auto` takes. Splitting and shuffling are done before (`staging`), writing after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import pyarrow as pa

from recsys_cli.errors import MissingExtraError
from recsys_cli.etl.staging import Staged
from recsys_cli.features.plan import FeaturePlan, FittedPlan
from recsys_cli.registry import ENGINES, load, lookup

Write = Callable[[int, pa.Table], None]
"""Takes a shard's number and its prepared rows; may be called from several threads, for shards in any order."""


class Engine(Protocol):
    """Computes a feature plan. All engines give the same result to the bit, floats within 1e-6."""

    @classmethod
    def missing(cls) -> MissingExtraError | None:
        """Return why the engine cannot run here, or None."""

    @classmethod
    def rank(cls) -> int:
        """Return how fast it is on this machine beside the others; `auto` takes the highest."""

    def fit(self, plan: FeaturePlan, staged: Staged) -> FittedPlan:
        """Learn the plan's state from the train split."""

    def tables(self, fitted: FittedPlan, staged: Staged) -> dict[str, pa.Table]:
        """Return for each joined key the joined columns by encoded id: row i belongs to id i.

        Rows 0, 1 and 2 hold what a join without a match gives.
        """

    def transform(self, fitted: FittedPlan, staged: Staged, split: str, *, layout: str, write: Write) -> None:
        """Prepare each shard of a split and hand it to `write`, rows in the order of `staged.read`."""


def choose(name: str) -> tuple[str, Engine]:
    """Return the engine of a name, or for `auto` the fastest that this machine can run, with its name.

    Raises:
        ConfigError: There is no such engine.
        MissingExtraError: It is not installed.
    """
    if name == "auto":
        able = [(engine.rank(), known) for known, engine in _all().items() if engine.missing() is None]
        name = max(able)[1]
    engine: type[Engine] = load(lookup(ENGINES, name, what="engine"))
    if (missing := engine.missing()) is not None:
        raise missing
    return name, engine()


def _all() -> dict[str, type[Engine]]:
    return {name: load(path) for name, path in ENGINES.items()}
