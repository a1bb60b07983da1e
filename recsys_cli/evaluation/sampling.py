"""Rankings of a few drawn items instead of all: what many papers report, and what no full ranking compares with.

Krichene and Rendle (KDD 2020) show that sampled metrics can order systems differently; so whatever is measured this way is
called so. Draws follow from the seed and from the values of users and items, so that differently prepared data has the same.
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


def drawn(held_out: HeldOut, counts: Ints, *, users: Hashes, items: Hashes, config: EvaluateConfig) -> HeldOut:
    """Return the problem with `config.sampled_items` drawn for each user, from what is neither seen nor relevant.

    All are drawn where there are fewer. By popularity, one after the other is drawn without replacement with a chance
    that is as its rows in train are: those with the smallest of exponential times with these rates (Efraimidis and
    Spirakis, 2006).

    Args:
        held_out: The problem, with all candidates.
        counts: Rows of train of each candidate, shape (I,).
        users: Hash of each ranked user's value, shape (U,).
        items: Hash of each candidate's value, shape (I,).
        config: How many to draw, how, and the seed.
    """
    rates = counts.astype(np.float64) if config.candidates == "sampled-popularity" else np.ones(len(counts))
    step = max(1, _BLOCK // max(1, len(counts)))
    owners, places = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for start in range(0, len(users), step):
        stop = min(start + step, len(users))
        times = _times(users[start:stop], items, rates, seed=config.seed)
        for hidden in (held_out.seen, held_out.relevant):
            times[hidden.block(start, stop)] = np.inf
        number = min(config.sampled_items, len(counts))
        chosen = np.argpartition(times, number - 1, axis=1)[:, :number] if number < len(counts) else None
        block = np.broadcast_to(np.arange(len(counts)), times.shape) if chosen is None else chosen
        there = np.isfinite(np.take_along_axis(times, block, axis=1))
        owners.append(np.nonzero(there)[0] + start)
        places.append(block[there])
    lists = Lists.of(np.concatenate(owners), np.concatenate(places), num_users=len(users))
    return replace(held_out, drawn=lists)


def _times(users: Hashes, items: Hashes, rates: npt.NDArray[np.float64], *, seed: int) -> npt.NDArray[np.float64]:
    """Return an exponential time for each pair, shape (U, I); the same pair always has the same."""
    keys = hash_counters(users, mix(seed, _DRAW))
    hashes = hash_counters(np.broadcast_to(items, (len(users), len(items))), keys[:, None])
    uniform = ((hashes >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    with np.errstate(divide="ignore"):  # what has no rate is never drawn
        return -np.log(uniform) / rates
