"""The one evaluator of bench_peers.py: it knows lists and probabilities of all systems, ours too, and nothing of who made them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
from ranx import Qrels, Run, evaluate
from sklearn.metrics import roc_auc_score

Array = npt.NDArray[np.float64]
TOP_K = {"hr@10": "hit_rate@10", "ndcg@10": "ndcg@10"}
"""Names of figures, and ranx's for them."""
MAIN = {"top-k": "ndcg@10", "ranking": "auc"}
"""What a verdict is about."""
RESAMPLES = {"top-k": 10_000, "ranking": 300}


@dataclass(frozen=True)
class Judged:
    """How far ours is above a peer.

    Attributes:
        difference: Ours less the peer's.
        low: Lower end of its 95 % interval over users.
        high: Upper end.
    """

    difference: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """What ours is: better or worse where the interval leaves zero out, equal otherwise."""
        return "better" if self.low > 0 else "worse" if self.high < 0 else "equal"


def figures(kind: str, files: Sequence[Path], test: Path) -> dict[str, float]:
    """Return the mean figures of a system over its rounds."""
    if kind == "ranking":
        return {"auc": float(np.mean([_auc(*_rows(file)) for file in files]))}
    return {name: float(found.mean()) for name, found in _by_user(files, test).items()}


def judge(kind: str, ours: Sequence[Path], peer: Sequence[Path], test: Path) -> dict[str, Judged]:
    """Return how ours differs from a peer on the same users: a paired bootstrap over them, each one's mean over rounds."""
    rng = np.random.default_rng(0)
    if kind == "ranking":
        return {"auc": _judged(*_auc_differences(ours, peer, rng))}
    of_ours, of_peer = _by_user(ours, test), _by_user(peer, test)
    found = {}
    for name, values in of_ours.items():
        differences = values - of_peer[name]
        drawn = rng.integers(0, len(differences), (RESAMPLES[kind], len(differences)))
        found[name] = _judged(float(differences.mean()), differences[drawn].mean(axis=1))
    return found


def _judged(difference: float, resampled: Array) -> Judged:
    low, high = np.percentile(resampled, [2.5, 97.5])
    return Judged(difference, float(low), float(high))


def _by_user(files: Sequence[Path], test: Path) -> dict[str, Array]:
    """Return the figures of each user of the test, in ascending order, as the mean over rounds."""
    rows = pq.read_table(test, columns=["userId", "movieId"])
    users, items = (rows[name].to_numpy() for name in ("userId", "movieId"))
    wanted = Qrels({str(user): {str(item): 1} for user, item in zip(users, items, strict=True)})
    rounds = []
    for file in files:
        lists = np.load(file)
        assert (lists["users"] == np.sort(users)).all()
        ranked = {
            str(user): {str(item): float(len(best) - place) for place, item in enumerate(best) if item}
            for user, best in zip(lists["users"], lists["items"], strict=True)
        }
        found = evaluate(wanted, Run(ranked), list(TOP_K.values()), return_mean=False, make_comparable=True)
        rounds.append({name: np.asarray(found[theirs]) for name, theirs in TOP_K.items()})
    return {name: np.mean([each[name] for each in rounds], axis=0) for name in TOP_K}


def _rows(file: Path) -> tuple[npt.NDArray[np.bool_], Array, npt.NDArray[np.int64]]:
    rows = np.load(file)
    return rows["labels"], rows["probabilities"], rows["users"]


def _auc(
    labels: npt.NDArray[np.bool_], scores: Array, users: npt.NDArray[np.int64], weight: Array | None = None
) -> float:
    weights = None if weight is None else weight[users]
    return float(roc_auc_score(labels, scores, sample_weight=weights))


def _auc_differences(ours: Sequence[Path], peer: Sequence[Path], rng: np.random.Generator) -> tuple[float, Array]:
    systems = [[_rows(file) for file in files] for files in (ours, peer)]
    everyone = np.unique(systems[0][0][2])
    assert all((np.sort(rows[2]) == np.sort(systems[0][0][2])).all() for rounds in systems for rows in rounds)

    def difference(weight: Array | None) -> float:
        first, second = (np.mean([_auc(*rows, weight) for rows in rounds]) for rounds in systems)
        return float(first - second)

    resampled = []
    for _ in range(RESAMPLES["ranking"]):
        drawn = rng.choice(everyone, len(everyone))
        resampled.append(difference(np.bincount(drawn, minlength=everyone[-1] + 1).astype(np.float64)))
    return difference(None), np.array(resampled)
