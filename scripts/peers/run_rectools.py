"""RecTools' half of bench_peers.py, run by the Python of the peers' venv: fits one model and keeps its lists.

usage: run_rectools.py JOB.json
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pandas as pd
import torch
from implicit.als import AlternatingLeastSquares
from implicit.bpr import BayesianPersonalizedRanking
from implicit.nearest_neighbours import CosineRecommender
from job import Job, K
from pytorch_lightning import seed_everything
from rectools import Columns
from rectools.dataset import Dataset
from rectools.models import (
    BERT4RecModel,
    EASEModel,
    HSTUModel,
    ImplicitALSWrapperModel,
    ImplicitBPRWrapperModel,
    ImplicitItemKNNWrapperModel,
    PopularModel,
    SASRecModel,
)


def main() -> None:
    """Fit and rank; models that take a user's history from the data get the longer one."""
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    job = Job.from_arguments()
    torch.set_num_threads(job.threads)
    seed_everything(job.seed)
    model = make_model(job)
    with job.timed("prepare"):
        data, asked = Dataset.construct(named(job.train)), Dataset.construct(named(job.history))
    assert (data.item_id_map.external_ids == asked.item_id_map.external_ids).all()
    with job.timed("fit"):
        if job.training:
            _fit_by_epochs(model, data, job)
        else:
            model.fit(data)
    with job.timed("rank"):
        lists = _lists(model, job.users, asked)
    job.write_lists(lists)


def _lists(model: Any, users: Any, data: Dataset) -> dict[int, Any]:
    found = model.recommend(users=users, dataset=data, k=K, filter_viewed=True)
    return {user: rows[Columns.Item].to_numpy() for user, rows in found.groupby(Columns.User, sort=False)}


def _fit_by_epochs(model: Any, data: Dataset, job: Job) -> None:
    """Train until the NDCG@10 of valid gets no better, as its training guide does; go back to the best epoch."""
    curve, users, best = job.start_curve(), np.sort(job.valid["userId"].unique()), {}
    for _ in range(job.training["epochs"]):
        model.fit_partial(data, min_epochs=1, max_epochs=1)
        if curve.add(_lists(model, users, data)):
            best = {name: value.clone() for name, value in model.lightning_model.state_dict().items()}
        if curve.over():
            break
    model.lightning_model.load_state_dict(best)


def make_model(job: Job) -> Any:
    """Return its model, not fitted."""
    options, drawn = job.options, {"num_threads": job.threads, "random_state": job.seed}
    match job.model:
        case "popularity":
            return PopularModel(**options)
        case "ease":
            return EASEModel(recommend_n_threads=job.threads, **options)
        case "item-knn":
            return ImplicitItemKNNWrapperModel(CosineRecommender(num_threads=job.threads, **options))
        case "ials":
            return ImplicitALSWrapperModel(AlternatingLeastSquares(**drawn, **options))
        case "mf":
            return ImplicitBPRWrapperModel(BayesianPersonalizedRanking(**drawn, **options))
        case "sasrec":
            return SASRecModel(**options)
        case "bert4rec":
            return BERT4RecModel(**options)
        case "hstu":
            return HSTUModel(**options)
    raise SystemExit(f"RecTools has no {job.model}")


def named(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows as it wants them; every rating weighs the same."""
    return pd.DataFrame(
        {
            Columns.User: rows["userId"],
            Columns.Item: rows["movieId"],
            Columns.Weight: 1.0,
            Columns.Datetime: pd.to_datetime(rows["timestamp"], unit="s"),
        }
    )


if __name__ == "__main__":
    main()
