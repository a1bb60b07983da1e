"""`recsys inspect`: one user or one item, with what is known of it and what a run makes of it, as plain values.

Nothing is written. Recommendations are asked of the model; who an item is recommended to is read from the run's evaluation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from recsys_cli.config import RunConfig
from recsys_cli.errors import DataError, MissingArtifactError
from recsys_cli.evaluation.names import IdNames
from recsys_cli.evaluation.rankings import Rankings
from recsys_cli.evaluation.recommend import RecommendingModel
from recsys_cli.evaluation.result import MODEL, Evaluation
from recsys_cli.evaluation.user_history import find_ground_truth, newest_first, num_positive, rows_of
from recsys_cli.features.schema import FIRST, Role
from recsys_cli.interactions import Interactions
from recsys_cli.loader.interactions import count_items
from recsys_cli.stages.loaded_run import config_of, earlier_splits, held_out_split, model_of, names_of
from recsys_cli.workspace import PreparedData, TrainedRun, Workspace


def inspect_user(run: TrainedRun, workspace: Workspace, name: str, *, k: int) -> dict[str, Any]:
    """Return what a user met, what the run's model recommends, and which of that the held-out rows confirm.

    Args:
        run: A finished run.
        workspace: Where its data is.
        name: The user's raw id.
        k: How many rows of history and recommendations.

    Returns:
        JSON values: run, user, features, label (the column's name), mean (in train, of a label that is a number; else null),
        split (the one that is held out, or null), rows and positive (by split), history (the newest first), to_find,
        recommended (best first), notes.

    Raises:
        MissingArtifactError: The run is not finished, or its data is gone.
        ConfigError: Train has no such user.
    """
    desk = _InspectContext.open(run, workspace)
    user_idx = desk.names.find(Role.USER, name)
    found = rows_of(desk.data, Role.USER, user_idx)
    history = newest_first(found, desk.earlier)
    held_out = (desk.split,) if desk.split else ()
    relevant = find_ground_truth(found, held_out, history, relevant=desk.config.evaluate.relevance)
    wanted, seen = ({met.item_idx for met in rows} for rows in (relevant, history))
    advisor = desk.ask(found)
    can = advisor.why_not is None
    best = advisor.recommend(user_idx, counts=count_items(desk.data), seen=seen, k=k) if can else []
    return {
        "run": run.folder.name,
        "user": desk.names.user(user_idx),
        "features": _lists(desk.names.features(Role.USER, user_idx)),
        "label": desk.data.schema.label.name,
        "mean": found["train"].mean,
        "split": desk.split,
        **_counts(found),
        "history": [
            {**desk.item(met.item_idx), "label": met.label, "time": desk.seconds(met.time), "split": met.split}
            for met in history[:k]
        ],
        "to_find": len(relevant),
        "recommended": [
            {"place": place, **desk.item(one.item_idx), "score": one.score, "hit": one.item_idx in wanted}
            for place, one in enumerate(best, start=1)
        ],
        "notes": [] if can else [f"the model cannot recommend: {advisor.why_not}"],
    }


def inspect_item(run: TrainedRun, workspace: Workspace, name: str, *, k: int) -> dict[str, Any]:
    """Return what an item is, who met it, to whom it was recommended, and what the model finds near it.

    Args:
        run: A finished run.
        workspace: Where its data is.
        name: The item's raw id, or its title.
        k: How many users and near items; also the places of a ranking that count as a recommendation.

    Returns:
        JSON values: run, item, title, features, label (the column's name), mean (as for a user), rows and positive (by split),
        popularity (its place among the items of train, null for an item without a row there, and of how many), recommended (null
        where nothing was ranked), nearest, notes.

    Raises:
        MissingArtifactError: The run is not finished, or its data is gone.
        ConfigError: Neither train nor the joined table of items has such an item.
    """
    desk = _InspectContext.open(run, workspace)
    item_idx = desk.names.find(Role.ITEM, name)
    found = rows_of(desk.data, Role.ITEM, item_idx)
    advisor = desk.ask(found)
    near, notes = [], []
    if not advisor.has_vectors:
        notes.append(f"no nearest items: {desk.config.model.name} has no vectors of items to compare")
    elif not advisor.knows(item_idx):
        notes.append(
            f"no nearest items: train does not know the item, and {desk.config.model.name} looks at no features"
        )
    else:
        near = advisor.nearest(item_idx, k=k)
    recommended = None
    if not (kept := run.evaluated()).evaluation.is_file():
        notes.append("who it is recommended to is not known before recsys evaluate")
    else:
        kept.verify_evaluation()
        recommended = _recommended_to(item_idx, Rankings.read(kept.rankings), desk.names, k=k)
    return {
        "run": run.folder.name,
        **desk.item(item_idx),
        "label": desk.data.schema.label.name,
        "mean": found["train"].mean,
        **_counts(found),
        "popularity": _popularity(item_idx, count_items(desk.data)),
        "recommended": recommended,
        "nearest": [{**desk.item(one.item_idx), "cosine": one.score} for one in near],
        "notes": notes,
    }


@dataclass(frozen=True)
class _InspectContext:
    """What both questions need."""

    run: TrainedRun
    config: RunConfig
    data: PreparedData
    names: IdNames

    @classmethod
    def open(cls, run: TrainedRun, workspace: Workspace) -> _InspectContext:
        config, data = config_of(run), workspace.data_of(run)
        names = names_of(config, data, workspace, title=_title(run, config))
        return cls(run, config, data, names)

    @property
    def split(self) -> str | None:
        """The split that is held out, as the evaluation chooses it; None where there is none."""
        return held_out_split(self.config, self.data)

    @property
    def earlier(self) -> tuple[str, ...]:
        """The splits that were there before it."""
        return earlier_splits(self.config, self.data)

    def ask(self, found: Mapping[str, Interactions]) -> RecommendingModel:
        """Load the model, to ask it about whom or what these rows are of."""
        model = model_of(self.run, self.config, self.data)
        met = sum((found[split] for split in self.earlier[1:]), found["train"])
        return RecommendingModel(
            model, self.data, earlier=self.earlier, batch_size=self.config.evaluate.batch_size, history=met
        )

    def seconds(self, time: float | None) -> float | None:
        """Return a time in seconds, where the data's unit is known."""
        ticks = self.data.schema.ticks
        return time if time is None or ticks == 1 else time / ticks

    def item(self, item_idx: int) -> dict[str, Any]:
        """Say what an item is."""
        item = self.names.item(item_idx)
        return {
            "item": item.id,
            "title": item.title,
            "features": _lists(item.features),
        }


def _title(run: TrainedRun, config: RunConfig) -> str | None:
    """Return the column with the titles: the latest evaluation may have been told of it after the run was trained."""
    try:
        return Evaluation.read(run.evaluated().evaluation).config.title
    except (MissingArtifactError, DataError):
        return config.evaluate.title


def _lists(features: Mapping[str, tuple[str, ...]]) -> dict[str, list[str]]:
    return {name: list(values) for name, values in features.items()}


def _counts(found: Mapping[str, Interactions]) -> dict[str, Any]:
    return {
        "rows": {split: len(rows) for split, rows in found.items()},
        "positive": {split: num_positive(rows) for split, rows in found.items()},
    }


def _popularity(item_idx: int, counts: npt.NDArray[np.int64]) -> dict[str, int | None]:
    """Return an item's place among the items of train by their rows, null where it has none, and how many items there are."""
    own = counts[FIRST:]
    rows = counts[item_idx] if item_idx < len(counts) else 0  # an item that train does not know
    return {"place": int(np.count_nonzero(own > rows)) + 1 if rows else None, "items": int(np.count_nonzero(own))}


def _recommended_to(item_idx: int, rankings: Rankings, names: IdNames, *, k: int) -> dict[str, Any] | None:
    """Count whom each system recommended an item to within k places, and name those that the model puts it highest for."""
    if not rankings.systems:
        return None
    within = {system: items[:, :k] == item_idx for system, items in rankings.items.items()}
    users, places = np.nonzero(within[MODEL])
    order = np.argsort(places, kind="stable")[:k]
    return {
        "k": min(k, max(rankings.k)),
        "split": rankings.split,
        "users_ranked": len(rankings.users),
        "sampled": rankings.sampled.shape[1] > 0,
        "systems": {system: int(np.count_nonzero(found)) for system, found in within.items()},
        "users": [
            {
                "user": names.ranked_user(rankings, int(users[row])),
                "place": int(places[row]) + 1,
                "hit": bool(rankings.hits[MODEL][users[row], places[row]]),
            }
            for row in order
        ],
    }
