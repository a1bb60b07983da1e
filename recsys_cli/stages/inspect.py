"""`recsys inspect`: data and recommendations of one user or item, as JSON values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from recsys_cli.config import RunConfig
from recsys_cli.evaluation.loaded_run import config_of, earlier_splits, held_out_split, model_in_context
from recsys_cli.evaluation.names import IdNames, find_ground_truth, newest_first, rows_of
from recsys_cli.evaluation.pointwise import knows, nearest
from recsys_cli.evaluation.rankings import Rankings
from recsys_cli.evaluation.result import MODEL
from recsys_cli.features.schema import FIRST, Role
from recsys_cli.interactions import Interactions
from recsys_cli.loader.interactions import count_items
from recsys_cli.serving.every_user import recommend_to_all
from recsys_cli.serving.recommender import Recommender
from recsys_cli.stages.names import evaluated_title, names_of
from recsys_cli.workspace import PreparedData, TrainedRun, Workspace


def inspect_user(run: TrainedRun, workspace: Workspace, name: str, *, k: int) -> dict[str, Any]:
    """Return a user's history and recommendations (k rows each), with hits in the held-out split.

    Returns:
        JSON values: run, user, features, label (column name), mean (of a numeric label in train, else null), split (the
        held-out one, or null), rows and positive (by split), history (newest first), to_find, recommended (best first),
        notes.

    Raises:
        MissingArtifactError: The run is not finished, or its data is gone.
        ConfigError: The user is not in train.
    """
    context = _InspectContext.open(run, workspace)
    user_idx = context.names.find(Role.USER, name)
    rows = rows_of(context.data, Role.USER, user_idx)
    history = newest_first(rows, context.earlier)
    held_out = (context.split,) if context.split else ()
    relevant = find_ground_truth(rows, held_out, history, context.config.evaluate)
    ground_truth = {interaction.item_idx for interaction in relevant}
    why_not, best = context.recommend(user_idx, rows, k=k)
    return {
        "run": run.folder.name,
        "user": context.names.user(user_idx),
        "features": _lists(context.names.features(Role.USER, user_idx)),
        "label": context.data.schema.label.name,
        "mean": rows["train"].mean,
        "split": context.split,
        **_counts(rows),
        "history": [
            {
                **context.item(one.item_idx),
                "label": one.label,
                "time": context.data.schema.seconds(one.time),
                "split": one.split,
            }
            for one in history[:k]
        ],
        "to_find": len(relevant),
        "recommended": [
            {"place": place, **context.item(item_idx), "score": score, "hit": item_idx in ground_truth}
            for place, (item_idx, score) in enumerate(best, start=1)
        ],
        "notes": [f"the model cannot recommend: {why_not}"] if why_not else [],
    }


def inspect_item(run: TrainedRun, workspace: Workspace, name: str, *, k: int) -> dict[str, Any]:
    """Return an item's features, audience, recommendations and nearest items, by raw id or title.

    Returns:
        JSON values: run, item, title, features, label (column name), mean (as for a user), rows and positive (by
        split), popularity (rank among the items of train, null without interactions there, and number of items),
        recommended (null without rankings), nearest, notes.

    Raises:
        MissingArtifactError: The run is not finished, or its data is gone.
        ConfigError: The item is neither in train nor in the dimension table of items.
    """
    context = _InspectContext.open(run, workspace)
    item_idx = context.names.find(Role.ITEM, name)
    rows = rows_of(context.data, Role.ITEM, item_idx)
    model = model_in_context(run, context.config, context.data)
    near, notes = [], []
    if model.scoring != "dot_product":
        notes.append(f"no nearest items: {context.config.model.name} has no item vectors")
    elif not knows(model, context.data, item_idx):
        notes.append(f"no nearest items: the item is not in train, and {context.config.model.name} uses no features")
    else:
        near = nearest(model, context.data, item_idx, k=k)
    recommended = None
    if not (evaluated := run.evaluated()).evaluation.is_file():
        notes.append("no users with this recommendation before recsys evaluate")
    else:
        evaluated.verify_evaluation()
        recommended = _recommended_to(item_idx, Rankings.read(evaluated.rankings), context.names, k=k)
    return {
        "run": run.folder.name,
        **context.item(item_idx),
        "label": context.data.schema.label.name,
        "mean": rows["train"].mean,
        **_counts(rows),
        "popularity": _popularity(item_idx, count_items(context.data)),
        "recommended": recommended,
        "nearest": [{**context.item(one.item_idx), "cosine": one.score} for one in near],
        "notes": notes,
    }


@dataclass(frozen=True)
class _InspectContext:
    run: TrainedRun
    workspace: Workspace
    config: RunConfig
    data: PreparedData
    names: IdNames

    @classmethod
    def open(cls, run: TrainedRun, workspace: Workspace) -> _InspectContext:
        config, data = config_of(run), workspace.data_of(run)
        names = names_of(config, data, workspace, title=evaluated_title(run) or config.evaluate.title)
        return cls(run, workspace, config, data, names)

    @property
    def split(self) -> str | None:
        """The held-out split."""
        return held_out_split(self.config, self.data)

    @property
    def earlier(self) -> tuple[str, ...]:
        """The splits of the user histories."""
        return earlier_splits(self.config, self.data)

    def recommend(
        self, user_idx: int, rows: Mapping[str, Interactions], *, k: int
    ) -> tuple[str | None, list[tuple[int, float]]]:
        """Return the reason against recommendations to a user with interactions by split, and the best items with scores."""
        history = sum((rows[split] for split in self.earlier[1:]), rows["train"])
        recommender = Recommender.of_run(self.run, self.workspace, only=history)
        if (reason := recommender.scorer.why_not) is not None:
            return reason, []
        blocks = recommend_to_all(recommender, np.array([user_idx]), k=k)
        return None, [
            pair for block in blocks for pair in zip(block.items.tolist(), block.scores.tolist(), strict=True)
        ]

    def item(self, item_idx: int) -> dict[str, Any]:
        item = self.names.item(item_idx)
        return {"item": item.id, "title": item.title, "features": _lists(item.features)}


def _lists(features: Mapping[str, tuple[str, ...]]) -> dict[str, list[str]]:
    return {name: list(values) for name, values in features.items()}


def _counts(rows: Mapping[str, Interactions]) -> dict[str, Any]:
    return {
        "rows": {split: len(part) for split, part in rows.items()},
        "positive": {split: int(np.count_nonzero(part.positive)) for split, part in rows.items()},
    }


def _popularity(item_idx: int, counts: npt.NDArray[np.int64]) -> dict[str, int | None]:
    """Return the popularity rank of an item in train, None without interactions, and the number of items."""
    own = counts[FIRST:]
    rows = counts[item_idx] if item_idx < len(counts) else 0  # a cold-start item
    return {"place": int(np.count_nonzero(own > rows)) + 1 if rows else None, "items": int(np.count_nonzero(own))}


def _recommended_to(item_idx: int, rankings: Rankings, names: IdNames, *, k: int) -> dict[str, Any] | None:
    """Return the number of users with an item in the top k of each system, and the users with the best ranks."""
    if not rankings.systems:
        return None
    in_top_k = {system: items[:, :k] == item_idx for system, items in rankings.items.items()}
    users, ranks = np.nonzero(in_top_k[MODEL])
    order = np.argsort(ranks, kind="stable")[:k]
    return {
        "k": min(k, max(rankings.k)),
        "split": rankings.split,
        "users_ranked": len(rankings.users),
        "sampled": rankings.sampled.shape[1] > 0,
        "systems": {system: int(np.count_nonzero(hits)) for system, hits in in_top_k.items()},
        "users": [
            {
                "user": names.ranked_user(rankings, int(users[row])),
                "place": int(ranks[row]) + 1,
                "hit": bool(rankings.hits[MODEL][users[row], ranks[row]]),
            }
            for row in order
        ],
    }
