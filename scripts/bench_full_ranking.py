"""Seconds to evaluate full rankings: ours, the matrix product that nobody can do without, and two peers on the same scores.

usage: bench_full_ranking.py [--users 160000] [--items 60000] [--dim 64] [--rounds 3] [--threads 0] [--peers PYTHON]

Random vectors of users and items are multiplied in blocks; what was seen is left out, the first 100 are ranked, and HR, NDCG,
MRR, recall and precision at 10, 50 and 100 are measured. The peers live in a venv of their own, whose Python is given:

    python -m venv /tmp/peers && /tmp/peers/bin/pip install torch recbole lenskit

They get the same vectors and have to come to the same figures. RecBole is measured twice: with our blocks of users, and with
those of its default eval_batch_size. All are timed in turn, on the same number of users; each is timed as a whole, and without
what its own scores took, the products of its blocks. A peer is stopped after a quarter of an hour, and its seconds are then a
bound from below. The result goes to scripts/results/full_ranking.json, or with peers to full_ranking_peers_USERS.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from measure import keep, machine, spread
from torch import Tensor

from recsys_cli.evaluation.held_out import HeldOut, Lists
from recsys_cli.evaluation.ranking import BLOCK_SCORES, rank
from recsys_cli.metrics import RANKING

K = (10, 50, 100)
SEEN, RELEVANT = 125, 5
PEERS = ("recbole in our blocks", "recbole by default", "lenskit")
LONGEST = 900
"""Seconds that a peer may take."""


def main() -> None:
    """Measure in turn and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in {"users": 160_000, "items": 60_000, "dim": 64, "rounds": 3, "threads": 0}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--peers", type=Path)
    given = parser.parse_args()
    if given.threads:
        torch.set_num_threads(given.threads)
    users, items, held_out = _problem(given.users, given.items, given.dim)
    block = max(1, BLOCK_SCORES // given.items)
    seconds: dict[str, list[float]] = {}
    without: dict[str, list[float]] = {}
    figures: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "problem.npz"
        lists = {f"{name}_{part}": getattr(getattr(held_out, name), part)
                 for name in ("seen", "relevant") for part in ("values", "offsets")}  # fmt: skip
        np.savez(path, users=users.numpy(), items=items.numpy(), **lists)
        for _ in range(given.rounds):
            seconds.setdefault("matrix product", []).append(_product(users, items, block))
            for name in ("ours", *(PEERS if given.peers else ())):
                found = _ours(users, items, held_out) if name == "ours" else _peer(given.peers, name, path, block)
                seconds.setdefault(name, []).append(found["seconds"] if found else LONGEST)
                if found:
                    without.setdefault(name, []).append(found["seconds"] - found["scoring"])
                    figures[name] = found["figures"]
    _agree(figures)
    best = {name: min(took) for name, took in seconds.items()}
    alone = {name: min(took) for name, took in without.items()}
    keep(
        f"full_ranking_peers_{given.users}" if given.peers else "full_ranking",
        {
            "machine": machine("torch") | {"threads": torch.get_num_threads()},
            "users, items, dim, k": [given.users, given.items, given.dim, K],
            "seconds (min / median / max)": {name: spread(took) for name, took in seconds.items()},
            "seconds without the scores (min / median / max)": {name: spread(took) for name, took in without.items()},
            f"stopped after {LONGEST} seconds": [name for name, took in seconds.items() if LONGEST in took],
            "ours, times the matrix product": round(best["ours"] / best["matrix product"], 2),
            "peers, times ours": {name: round(best[name] / best["ours"], 1) for name in PEERS if name in best},
            "peers, times ours, without the scores": {
                name: round(alone[name] / alone["ours"], 1) for name in PEERS if name in alone
            },
            "figures": figures,
        },
    )


def _problem(num_users: int, num_items: int, dim: int) -> tuple[Tensor, Tensor, HeldOut]:
    """Draw vectors, and for each user what was seen and what should be found."""
    rng, generator = np.random.default_rng(0), torch.Generator().manual_seed(0)
    users, items = (torch.randn(size, dim, generator=generator) for size in (num_users, num_items))
    # What should be found is rather what scores high, so that the figures say something.
    near = (users[:, :8] @ items[:4_096, :8].T).topk(RELEVANT, dim=1).indices.numpy()
    relevant = Lists.of(np.repeat(np.arange(num_users), RELEVANT), near.ravel(), num_users=num_users)
    pairs = np.repeat(np.arange(num_users), SEEN), rng.integers(0, num_items, num_users * SEEN)
    wanted = pairs[0] * num_items + pairs[1]
    free = ~np.isin(wanted, np.repeat(np.arange(num_users), relevant.lengths) * num_items + relevant.values)
    seen = Lists.of(pairs[0][free], pairs[1][free], num_users=num_users)
    return users, items, HeldOut(
        np.arange(num_users), np.arange(num_items), seen, relevant, relevant.lengths, num_users, 0
    )  # fmt: skip


def _product(users: Tensor, items: Tensor, block: int) -> float:
    started = time.perf_counter()
    with torch.inference_mode():
        for start in range(0, len(users), block):
            users[start : start + block] @ items.T
    return time.perf_counter() - started


def _ours(users: Tensor, items: Tensor, held_out: HeldOut) -> dict[str, Any]:
    scoring = 0.0

    def scorer(user_idx: npt.NDArray[np.int64]) -> Tensor:
        nonlocal scoring
        before = time.perf_counter()
        vectors = users[torch.from_numpy(user_idx)]
        assert max(vectors.abs().amax(), biggest) < 1e15  # as the scorer of a model looks
        scores = (items @ vectors.T).T
        scoring += time.perf_counter() - before
        return scores

    started = time.perf_counter()
    biggest = items.abs().amax()
    ranked, _ = rank(held_out, scorer, cut_off=max(K))
    figures = {
        f"{name}@{k}": float(RANKING[name].compute(ranked, k).mean())
        for name in ("hr", "ndcg", "mrr", "recall", "precision")
        for k in K
    }
    return {"seconds": time.perf_counter() - started, "scoring": scoring, "figures": figures}


def _peer(python: Path, peer: str, problem: Path, block: int) -> dict[str, Any] | None:
    """Run a peer; None where it takes too long."""
    script = Path(__file__).parent / "peers" / "full_ranking.py"
    command = [str(python), str(script), peer, str(problem), str(block), str(torch.get_num_threads())]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONGEST)
    except subprocess.TimeoutExpired:
        return None
    if done.returncode:
        raise SystemExit(f"{peer} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def _agree(figures: dict[str, dict[str, float]]) -> None:
    """Stop where a peer comes to something else: then it was not the same work."""
    for peer, found in figures.items():
        for name, value in found.items():
            if abs(value - figures["ours"][name]) > 1e-4:
                raise SystemExit(f"{name} of {peer} is {value}, and ours is {figures['ours'][name]}")


if __name__ == "__main__":
    main()
