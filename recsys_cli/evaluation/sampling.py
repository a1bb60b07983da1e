"""Sampled-candidate evaluation: common in papers, but not comparable with full ranking.

Sampled metrics can order systems differently (Krichene and Rendle, KDD 2020), so their names carry a prefix. Samples
depend on the seed and on raw values: data prepared differently has the same samples.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from recsys_cli.config import EvaluateConfig
from recsys_cli.evaluation.fingerprint import Hashes
from recsys_cli.evaluation.held_out import HeldOut, Ints, Lists
from recsys_cli.features.hashing import hash_counters, mix

_DRAW = 18
_BLOCK = 1 << 22


def sample_candidates(
    held_out: HeldOut, counts: Ints, *, users: Hashes, items: Hashes, config: EvaluateConfig
) -> HeldOut:
    """Return the problem with `config.sampled_items` sampled candidates for each user, neither seen nor relevant.

    Users with fewer such candidates get all of them. `sampled-popularity` samples without replacement with
    probabilities proportional to train rows, `counts` (I,): the smallest of exponential times with these rates
    (Efraimidis and Spirakis, 2006). `users` (U,) and `items` (I,) are hashes of raw values.
    """
    rates = counts.astype(np.float64) if config.candidates == "sampled-popularity" else np.ones(len(counts))
    step = max(1, _BLOCK // max(1, len(counts)))
    owners, positions = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for start in range(0, len(users), step):
        stop = min(start + step, len(users))
        times = _times(users[start:stop], items, rates, seed=config.seed)
        for excluded in (held_out.seen, held_out.relevant):
            times[excluded.block(start, stop)] = np.inf
        number = min(config.sampled_items, len(counts))
        chosen = np.argpartition(times, number - 1, axis=1)[:, :number] if number < len(counts) else None
        block = np.broadcast_to(np.arange(len(counts)), times.shape) if chosen is None else chosen
        is_sampled = np.isfinite(np.take_along_axis(times, block, axis=1))
        owners.append(np.nonzero(is_sampled)[0] + start)
        positions.append(block[is_sampled])
    lists = Lists.of(np.concatenate(owners), np.concatenate(positions), num_users=len(users))
    return replace(held_out, sampled=lists)


def _times(users: Hashes, items: Hashes, rates: npt.NDArray[np.float64], *, seed: int) -> npt.NDArray[np.float64]:
    """Return an exponential time for each (user, item) pair, shape (U, I)."""
    keys = hash_counters(users, mix(seed, _DRAW))
    hashes = hash_counters(np.broadcast_to(items, (len(users), len(items))), keys[:, None])
    uniform = ((hashes >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    with np.errstate(divide="ignore"):  # rate 0 gives an infinite time: never sampled
        return -np.log(uniform) / rates
