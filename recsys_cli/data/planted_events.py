"""Generative models of click logs, sessions and impressions, with the figures of the best possible predictor."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from recsys_cli.metrics.labels import AUC

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_CARDINALITIES = (4, 10, 30, 100, 300, 1_000, 3_000, 10_000)
_NUM_COUNTS = 4
_SUCCESSORS, _FOLLOWS = 10, 0.75
_CANDIDATES, _DIM = 12, 4
_START = 1_700_000_000
_CUT_OFF = 10
_CHUNK = 2_000


def clicks(rows: int, seed: int) -> tuple[dict[str, pa.Table], dict[str, object]]:
    """Return a click log: counts I1 to I4, some missing, and tokens C1 to C8 of growing cardinality.

    The logit of a click is a sum of weights of the tokens, a product of vectors of C3 and C4, and logs of the counts.
    """
    rng = np.random.default_rng(seed)
    values = [(rng.random(rows) ** 2.5 * size).astype(np.int64) for size in _CARDINALITIES]
    logit = np.full(rows, -1.2)
    for value, size in zip(values, _CARDINALITIES, strict=True):
        logit += rng.normal(0, 0.45, size)[value]
    pair = [rng.normal(0, 0.7, (size, 2)) for size in _CARDINALITIES[2:4]]
    logit += np.einsum("nd,nd->n", pair[0][values[2]], pair[1][values[3]])
    columns: dict[str, pa.Array] = {}
    for number in range(1, _NUM_COUNTS + 1):
        count, missing = np.floor(rng.lognormal(1, 1, rows)), rng.random(rows) < 0.1
        logit += np.where(missing, 0, (0.5 - 0.2 * number) * (np.log1p(count) - 1.4))
        columns[f"I{number}"] = pa.array(count.astype(np.int32), mask=missing)
    for number, value in enumerate(values, 1):
        columns[f"C{number}"] = pa.array([f"{token:08x}" for token in (value * 2_654_435_761 + number) % 2**32])
    label, chance = _coins(rng, logit)
    log_loss = float(-np.mean(np.log(np.where(label == 1, chance, 1 - chance))))
    table = pa.table({"label": pa.array(label), **columns})
    ceiling = {"label": "label", "auc": float(AUC.of_rows(label == 1, chance)), "log_loss": log_loss}
    return {"interactions": table}, {"ceiling": ceiling, "positives": float(label.mean())}


def sessions(count: int, items: int, seed: int) -> tuple[dict[str, pa.Table], dict[str, object]]:
    """Return sessions of a Markov chain without repeats: an item, then often one of its ten successors.

    The ceiling ranks the last item of each session by the chain's probabilities after the one before it.
    """
    rng = np.random.default_rng(seed)
    popularity = 1 / (np.arange(items) + 10.0)
    popularity /= popularity.sum()
    chain = np.tile((1 - _FOLLOWS) * popularity, (items, 1))
    share = 0.6 ** np.arange(_SUCCESSORS)
    for item in range(items):
        chain[item, rng.choice(items, _SUCCESSORS, replace=False)] += _FOLLOWS * share / share.sum()
    cumulative = np.cumsum(chain / chain.sum(axis=1, keepdims=True), axis=1)
    lengths = np.minimum(3 + rng.geometric(0.3, count), 20)
    history = np.full((count, 20), -1)
    history[:, 0] = np.searchsorted(np.cumsum(popularity), rng.random(count)).clip(max=items - 1)
    for step in range(1, 20):
        todo = np.flatnonzero(lengths > step)
        while len(todo):  # repeats are drawn again
            drawn = _next(cumulative, history[todo, step - 1], rng.random((len(todo), 1)))
            history[todo, step] = np.where((history[todo, :step] == drawn[:, None]).any(axis=1), -1, drawn)
            todo = todo[history[todo, step] < 0]
    session, position = np.nonzero(history >= 0)
    start = _START + np.sort(rng.integers(0, 30 * 86_400, count))
    table = pa.table({
        "session": session.astype(np.int32),
        "item": history[session, position].astype(np.int32),
        "timestamp": start[session] + 30 * position,
    })  # fmt: skip
    return {"interactions": table}, {"ceiling": {"label": "next item", **_best_of_chain(chain, history, lengths)}}


def impressions(users: int, news: int, count: int, seed: int) -> tuple[dict[str, pa.Table], dict[str, object]]:
    """Return impressions of 12 news each; a click depends on the user's taste for the topic and on the news."""
    rng = np.random.default_rng(seed)
    taste, topic = rng.normal(0, 1, (users, _DIM)), rng.normal(0, 1, (news, _DIM))
    quality = rng.normal(0, 0.6, news)
    user = np.repeat(rng.integers(0, users, count), _CANDIDATES)
    shown = np.concatenate([_shown(rng, rows, news) for rows in _sizes(count)]).ravel()
    logit = -2.0 + 0.8 * np.einsum("nd,nd->n", taste[user], topic[shown]) + quality[shown]
    click, chance = _coins(rng, logit)
    impression = np.repeat(np.arange(count), _CANDIDATES)
    table = pa.table({
        "impression_id": impression,
        "user_id": pa.array([f"U{one}" for one in user]),
        "time": _START + 60 * impression,
        "news_id": pa.array([f"N{one}" for one in shown]),
        "click": pa.array(click),
    })  # fmt: skip
    topics = pa.table(
        {"news_id": [f"N{one}" for one in range(news)], "category": [f"topic {one}" for one in topic.argmax(axis=1)]}
    )
    best = _best_of_impressions(click.reshape(count, -1), chance.reshape(count, -1))
    ceiling = {"label": "click", "auc": float(AUC.of_rows(click == 1, chance)), **best}
    return {"interactions": table, "news": topics}, {"ceiling": ceiling, "positives": float(click.mean())}


def _next(cumulative: Floats, last: Ints, uniform: Floats) -> Ints:
    """Return the next item of each session by the inverse of the cumulative probabilities, in chunks."""
    parts, start = [], 0
    for rows in _sizes(len(last)):
        part = slice(start, start := start + rows)
        parts.append((cumulative[last[part]] < uniform[part]).sum(axis=1))
    return np.concatenate(parts).clip(max=cumulative.shape[1] - 1)


def _shown(rng: np.random.Generator, rows: int, news: int) -> Ints:
    """Return distinct news for each impression, popular ones more often."""
    order = rng.random((rows, news)) * np.sqrt(np.arange(news) + 10.0)
    return np.argsort(order, axis=1)[:, :_CANDIDATES]


def _sizes(rows: int) -> list[int]:
    return [min(_CHUNK, rows - start) for start in range(0, rows, _CHUNK)]


def _coins(rng: np.random.Generator, logit: Floats) -> tuple[NDArray[np.int8], Floats]:
    chance = 1 / (1 + np.exp(-logit))
    return (rng.random(len(logit)) < chance).astype(np.int8), chance


def _best_of_chain(chain: Floats, history: Ints, lengths: Ints) -> dict[str, float]:
    rows = np.arange(len(history))
    target, last = history[rows, lengths - 1], history[rows, lengths - 2]
    ranks = np.empty(len(rows))
    for start in range(0, len(rows), _CHUNK):
        part = slice(start, start + _CHUNK)
        scores = chain[last[part]]
        seen = np.where(np.arange(20) < lengths[part, None] - 1, history[part], -1)
        row, column = np.nonzero(seen >= 0)
        scores[row, seen[row, column]] = -1
        ranks[part] = (scores > chain[last[part], target[part], None]).sum(axis=1)
    hits = ranks < _CUT_OFF
    return {f"hr@{_CUT_OFF}": float(hits.mean()), f"ndcg@{_CUT_OFF}": float((hits / np.log2(ranks + 2)).mean())}


def _best_of_impressions(click: NDArray[np.int8], chance: Floats) -> dict[str, float]:
    """Return the metrics of MIND, as means over the impressions with both classes."""
    mixed = (click.any(axis=1)) & ~click.all(axis=1)
    ranked = np.take_along_axis(click[mixed], np.argsort(-chance[mixed], axis=1), axis=1).astype(np.float64)
    positives, size = ranked.sum(axis=1), ranked.shape[1]
    place = np.arange(1, size + 1)
    before = np.cumsum(1 - ranked, axis=1)
    group_auc = 1 - (ranked * before).sum(axis=1) / (positives * (size - positives))
    best = {"impression_auc": float(group_auc.mean()), "mrr": float(((ranked / place).sum(axis=1) / positives).mean())}
    for k in (5, 10):
        ideal = np.cumsum(1 / np.log2(place + 1))[np.minimum(positives, k).astype(int) - 1]
        best[f"ndcg@{k}"] = float(((ranked / np.log2(place + 1))[:, :k].sum(axis=1) / ideal).mean())
    return best
