"""LensKit's half of bench_peers.py, run by the Python of the peers' venv: fits one model and keeps its lists.

usage: run_lenskit.py JOB.json
"""

from __future__ import annotations

from typing import Any

import torch
from job import Job, K
from lenskit.als import ImplicitMFScorer
from lenskit.basic import PopScorer
from lenskit.batch import recommend
from lenskit.data import ItemList, RecQuery, from_interactions_df
from lenskit.flexmf import FlexMFImplicitScorer
from lenskit.knn import EASEScorer, ItemKNNScorer, SLIMScorer
from lenskit.pipeline import topn_pipeline
from lenskit.training import TrainingOptions

SCORERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "popularity": (PopScorer, {}),
    "item-knn": (ItemKNNScorer, {"feedback": "implicit"}),
    "ease": (EASEScorer, {}),
    "slim": (SLIMScorer, {}),
    "ials": (ImplicitMFScorer, {}),
    "mf": (FlexMFImplicitScorer, {"preset": "bpr"}),
    "lightgcn": (FlexMFImplicitScorer, {"preset": "lightgcn"}),
}
"""Ours by name: what LensKit has for it, and what has to be said for rows without ratings."""


def main() -> None:
    """Fit and rank; histories reach the scorers that fold them in, and what is in them is not recommended."""
    job = Job.from_arguments()
    torch.set_num_threads(job.threads)
    kind, options = SCORERS[job.model]
    with job.timed("prepare"):
        data = from_interactions_df(_named(job.train))
    pipeline = topn_pipeline(kind(**options, **job.options), n=K)
    with job.timed("fit"):
        pipeline.train(data, TrainingOptions(rng=job.seed))
    with job.timed("rank"):
        histories = {user: rows["movieId"].to_numpy() for user, rows in job.history.groupby("userId")}
        queries = [RecQuery(user_id=user, history_items=ItemList(item_ids=histories[user])) for user in job.users]
        found = recommend(pipeline, queries, n=K, n_jobs=1)
        lists = {key.user_id: items.ids() for key, items in found.items()}
    job.write_lists(lists)


def _named(rows: Any) -> Any:
    return rows[["userId", "movieId", "timestamp"]].rename(columns={"userId": "user_id", "movieId": "item_id"})


if __name__ == "__main__":
    main()
