"""RecBole's half of bench_peers.py, run by the Python of the peers' venv: fits one model and keeps its lists or probabilities.

usage: run_recbole.py JOB.json

RecBole splits by itself: the last two rows of each user by a time that is the row's place in the fixed splits, so it comes to
the same ones. A ranking model gets its three files. Its models by item weights score by a longer history where they are told.
"""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from job import Job, K
from recbole.config import Config
from recbole.data import create_dataset, data_preparation
from recbole.trainer import TraditionalTrainer
from recbole.utils import get_model, get_trainer, init_seed
from recbole.utils.case_study import full_sort_scores
from scipy import sparse

MODELS = {
    "popularity": "Pop", "item-knn": "ItemKNN", "ease": "EASE", "slim": "SLIMElastic", "mf": "BPR", "lightgcn": "LightGCN",
    "sasrec": "SASRec", "gru4rec": "GRU4Rec", "bert4rec": "BERT4Rec",
    "fm": "FM", "deepfm": "DeepFM", "dcn-v2": "DCNV2", "wide-deep": "WideDeep",
}  # fmt: skip
RANKING = ("fm", "deepfm", "dcn-v2", "wide-deep")
SEQUENTIAL = ("sasrec", "gru4rec", "bert4rec")
BY_WEIGHTS = ("item-knn", "ease", "slim")
USER, ITEM = "user_id", "item_id"
INTERACTIONS = {USER: "token", ITEM: "token"}


def main() -> None:
    """Fit and ask."""
    as_it_was()
    job = Job.from_arguments()
    torch.set_num_threads(job.threads)
    ranking = job.model in RANKING
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with job.timed("prepare"):
            own = _ranking_data(job, Path(folder)) if ranking else top_k_data(job, Path(folder))
            config, train, valid, test = prepared(job, own, folder)
        with job.timed("fit"):
            model = _fitted(config, train, valid, _noted(job, valid) if job.training else None)
        with job.timed("rank"):
            found = _probabilities(model, test) if ranking else _lists(job, model, test, job.users, job.history)
    if ranking:
        job.write_probabilities(found)
    else:
        job.write_lists(found)


def as_it_was() -> None:
    """Give RecBole 1.2.1 the names that it still asks numpy and scipy for."""
    np.float, np.long = float, np.int64
    sparse.dok_matrix._update = lambda self, entries: self._dict.update(entries)
    logging.disable(logging.CRITICAL)


def top_k_data(job: Job, folder: Path) -> dict[str, Any]:
    """Write all rows, with their place as their time; return the options that split them as they were."""
    rows = pd.concat([job.train, job.valid, job.test], ignore_index=True)
    _write(folder / "rows" / "rows.inter", rows.assign(place=np.arange(len(rows))), {**INTERACTIONS, "place": "float"})
    return {
        "load_col": {"inter": [USER, ITEM, "place"]},
        "TIME_FIELD": "place",
        "eval_args": {"split": {"LS": "valid_and_test"}, "order": "TO", "group_by": "user", "mode": "full"},
        **({"train_neg_sample_args": None} if job.model in SEQUENTIAL else {}),
    }


def _ranking_data(job: Job, folder: Path) -> dict[str, Any]:
    """Write the three splits and the items with their genres; return the options that read them."""
    for name in ("train", "valid", "test"):
        rows = getattr(job, name).assign(label=lambda rows: (rows["rating"] > 3).astype(int))
        _write(folder / "rows" / f"rows.{name}.inter", rows, {**INTERACTIONS, "label": "float"})
    items = job.items.assign(genres=job.items["genres"].str.replace(" ", "_").str.replace("|", " "))
    _write(folder / "rows" / "rows.item", items, {ITEM: "token", "genres": "token_seq"})
    return {
        "benchmark_filename": ["train", "valid", "test"],
        "load_col": {"inter": [*INTERACTIONS, "label"], "item": [ITEM, "genres"]},
        "eval_args": {"mode": "labeled"},
        "metrics": ["AUC", "LogLoss"],
        "valid_metric": "AUC",
        "train_neg_sample_args": None,
    }


def _write(path: Path, rows: pd.DataFrame, kinds: dict[str, str]) -> None:
    path.parent.mkdir(exist_ok=True)
    named = rows.rename(columns={"userId": USER, "movieId": ITEM})[list(kinds)]
    named.columns = [f"{name}:{kind}" for name, kind in kinds.items()]
    named.to_csv(path, sep="\t", index=False)


def prepared(job: Job, own: dict[str, Any], folder: str) -> tuple[Any, ...]:
    """Return its config, and its loaders of train, valid and test."""
    options = {
        "data_path": folder, "checkpoint_dir": folder, "use_gpu": False, "show_progress": False, "seed": job.seed + 1,
        "normalize_all": False, **own, **job.options,
    }  # fmt: skip
    config = Config(model=MODELS[job.model], dataset="rows", config_dict=options)
    init_seed(config["seed"], config["reproducibility"])
    return config, *data_preparation(config, create_dataset(config))


class _LimitError(Exception):
    """The processor seconds of a sequence model are used up."""


def _noted(job: Job, valid: Any) -> Callable[[Any], None]:
    """Return what adds an epoch to the curve, off its clock: RecBole has its own validation and end."""
    curve, users = job.start_curve(stops_by_itself=True), np.sort(job.valid["userId"].unique())

    def note(model: Any) -> None:
        started = curve.seconds
        curve.add(_lists(job, model, valid, users, job.train), seconds=started)
        curve.pause(started)
        if curve.over():
            raise _LimitError

    return note


def _fitted(config: Any, train: Any, valid: Any, note: Callable[[Any], None] | None = None) -> Any:
    """Train, and go back to the epoch that was best on valid; a model that learns all at once has none to choose."""
    model = get_model(config["model"])(config, train.dataset)
    trainer = get_trainer(config["MODEL_TYPE"], config["model"])(config, model)
    at_once = isinstance(trainer, TraditionalTrainer)
    with suppress(_LimitError):
        trainer.fit(
            train, None if at_once else valid, verbose=False, saved=not at_once, show_progress=False,
            callback_fn=(lambda *_: note(model)) if note else None,
        )  # fmt: skip
    if not at_once:
        kept = torch.load(trainer.saved_model_file, weights_only=False)
        model.load_state_dict(kept["state_dict"])
        model.load_other_parameter(kept.get("other_parameter"))
    return model.eval()


def _lists(job: Job, model: Any, test: Any, asked: Any, history: pd.DataFrame) -> dict[int, np.ndarray]:
    """Rank the items with a train row that a user has not met."""
    model.eval()
    dataset = test.dataset
    users, items = (dataset.token2id(USER, asked.astype(str)), _ids(dataset, ITEM, job.train["movieId"].unique()))
    met = _ids(dataset, USER, history["userId"]), _ids(dataset, ITEM, history["movieId"])
    if job.model in BY_WEIGHTS:
        _longer_history(model, job.model, met)
    with torch.no_grad():
        scores = full_sort_scores(users, model, test)
    rows = pd.Series(np.arange(len(users)), index=users)
    scores[torch.from_numpy(rows.loc[met[0]].to_numpy()), torch.from_numpy(met[1])] = -torch.inf
    candidates = torch.from_numpy(items)
    best = candidates[scores[:, candidates].topk(K).indices]
    names = dataset.id2token(ITEM, best.numpy())
    return dict(zip(asked.tolist(), np.asarray(names).astype(np.int64), strict=True))


def _ids(dataset: Any, field: str, values: Any) -> np.ndarray:
    known = dataset.field2token_id[field]
    return np.array([known[str(value)] for value in values])


def _longer_history(model: Any, name: str, met: tuple[np.ndarray, np.ndarray]) -> None:
    """Let a model that multiplies histories by weights of items have those before the test."""
    shape = (model.n_users, model.n_items)
    history = sparse.csr_matrix((np.ones(len(met[0]), np.float32), met), shape=shape)
    if name == "item-knn":
        model.pred_mat = history.dot(model.w).tolil()
    else:
        model.interaction_matrix = history


def _probabilities(model: Any, test: Any) -> np.ndarray:
    with torch.no_grad():
        return torch.cat([model.predict(batch[0]) for batch in test]).numpy()


if __name__ == "__main__":
    main()
