"""The peers' half of bench_full_ranking.py: run by the Python of their venv, it prints seconds and figures as JSON.

usage: full_ranking.py "recbole in our blocks"|"recbole by default"|lenskit PROBLEM.npz BLOCK THREADS
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator

import numpy as np
import torch

K = (10, 50, 100)


def main() -> None:
    """Time one peer."""
    peer, path, block, threads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    problem = dict(np.load(path))
    by_default = max(1, 4_096 // len(problem["items"]))  # RecBole's eval_batch_size counts scores
    measure: dict[str, Callable[[], dict[str, float]]] = {
        "recbole in our blocks": lambda: recbole(problem, int(block)),
        "recbole by default": lambda: recbole(problem, by_default),
        "lenskit": lambda: lenskit(problem, int(block)),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = measure[peer]()
    print(json.dumps({"seconds": found.pop("seconds"), "scoring": found.pop("scoring"), "figures": found}))


class Blocks:
    """Scores, block by block.

    Attributes:
        seconds: How long they took to make, so far.
    """

    def __init__(self, problem: dict[str, np.ndarray], block: int) -> None:
        self.users, self.items = torch.from_numpy(problem["users"]), torch.from_numpy(problem["items"])
        self.block = block
        self.seconds = 0.0

    def __iter__(self) -> Iterator[tuple[int, int, torch.Tensor]]:
        """Multiply the vectors of some users with all items'."""
        for start in range(0, len(self.users), self.block):
            stop = min(start + self.block, len(self.users))
            started = time.perf_counter()
            scores = self.users[start:stop] @ self.items.T
            self.seconds += time.perf_counter() - started
            yield start, stop, scores


def pairs(problem: dict[str, np.ndarray], name: str, start: int, stop: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return rows and items of one of the problem's lists, for some users."""
    offsets = problem[f"{name}_offsets"][start : stop + 1]
    rows = np.repeat(np.arange(stop - start), np.diff(offsets))
    return torch.from_numpy(rows), torch.from_numpy(problem[f"{name}_values"][offsets[0] : offsets[-1]])


def recbole(problem: dict[str, np.ndarray], block: int) -> dict[str, float]:
    """Evaluate with RecBole's collector and evaluator, as its trainer does; without its data loader."""
    from recbole.evaluator import Collector, Evaluator

    np.float = float  # which it still asks for, and numpy has no more
    config = {
        "metrics": ["Hit", "NDCG", "MRR", "Recall", "Precision"], "topk": list(K), "metric_decimal_place": 10,
        "eval_args": {"mode": "full"}, "device": torch.device("cpu"),
    }  # fmt: skip
    collector, evaluator = Collector(config), Evaluator(config)
    blocks = Blocks(problem, block)
    started = time.perf_counter()
    with torch.no_grad():
        for start, stop, scores in blocks:
            scores[pairs(problem, "seen", start, stop)] = -np.inf
            collector.eval_batch_collect(scores, None, *pairs(problem, "relevant", start, stop))
    found = evaluator.evaluate(collector.get_data_struct())
    seconds = time.perf_counter() - started
    figures = {name.replace("hit@", "hr@"): float(value) for name, value in found.items()}
    return {"seconds": seconds, "scoring": blocks.seconds, **figures}


def lenskit(problem: dict[str, np.ndarray], block: int) -> dict[str, float]:
    """Evaluate with LensKit's lists, ranking and analysis."""
    from lenskit.data import ItemList, ItemListCollection
    from lenskit.metrics import NDCG, Hit, LogRankWeight, Precision, Recall, RecipRank, RunAnalysis

    items = np.arange(len(problem["items"]))
    relevant = np.split(problem["relevant_values"], problem["relevant_offsets"][1:-1])
    test = ItemListCollection.from_dict(
        {user: ItemList(item_ids=wanted) for user, wanted in enumerate(relevant)}, "user_id"
    )
    analysis = RunAnalysis()
    for k in K:
        weight = LogRankWeight(offset=1)
        for name, metric in {
            "hr": Hit(k), "ndcg": NDCG(k, weight=weight), "mrr": RecipRank(k), "recall": Recall(k), "precision": Precision(k),
        }.items():  # fmt: skip
            analysis.add_metric(metric, f"{name}@{k}")
    blocks = Blocks(problem, block)
    started = time.perf_counter()
    found = ItemListCollection.empty(["user_id"])
    for start, stop, scores in blocks:
        rows = scores.numpy()
        for user in range(start, stop):
            seen = problem["seen_values"][problem["seen_offsets"][user] : problem["seen_offsets"][user + 1]]
            left = np.ones(len(items), dtype=bool)
            left[seen] = False
            found.add(ItemList(item_ids=items[left], scores=rows[user - start][left]).top_n(max(K)), user_id=user)
    means = analysis.measure(found, test).list_metrics().mean()
    figures = {name: float(value) for name, value in means.items()}
    return {"seconds": time.perf_counter() - started, "scoring": blocks.seconds, **figures}


if __name__ == "__main__":
    main()
