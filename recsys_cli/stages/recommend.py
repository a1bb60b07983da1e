"""`recsys recommend`: recommendations of a run or a bundle, for one user or into a file for all."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recsys_cli.errors import ConfigError
from recsys_cli.events import Emit, Progress, ignore
from recsys_cli.features.schema import FIRST
from recsys_cli.serving.bundle import read_bundle
from recsys_cli.serving.every_user import recommend_to_all
from recsys_cli.serving.query import Answer, CatalogItem, Query
from recsys_cli.serving.recommender import Recommender
from recsys_cli.stages.export import served_run
from recsys_cli.stages.tables import TableWriter, read_column, read_columns
from recsys_cli.workspace import Bundle, TrainedRun, Workspace

_BLOCK = 1_024
"""Queries answered at once where users come with their histories."""


@dataclass(frozen=True)
class Written:
    """Result of recommendations in a file.

    Attributes:
        output: The file.
        users: Number of users.
        rows: Number of recommendations.
        without: Number of users without any.
        seconds: Duration.
    """

    output: Path
    users: int
    rows: int
    without: int
    seconds: float


def open_recommender(source: TrainedRun | Bundle, workspace: Workspace) -> Recommender:
    """Load a run or a bundle."""
    served = read_bundle(source) if isinstance(source, Bundle) else served_run(source, workspace)
    return Recommender(served)


def recommend(recommender: Recommender, query: Query) -> dict[str, Any]:
    """Return an answer as JSON values."""
    (answer,) = recommender.recommend([query])
    return {"user": query.user, "k": query.k, **_answer(recommender, answer)}


def similar(recommender: Recommender, name: str, *, k: int) -> dict[str, Any]:
    """Return the nearest items of an item, by its id or a part of its title.

    Raises:
        ConfigError: No item matches; the message has similar ones.
    """
    place = int(recommender.catalog.places_of([name])[0])
    if place >= 0:
        item = recommender.catalog.item(place)
    elif not name.isdecimal() and (found := recommender.search(name, 2)):
        item = found[0]
        if len(found) > 1 and (found[0].title or "").casefold() != name.casefold():
            titles = "; ".join(f"{one.id} ({one.title})" for one in recommender.search(name, 5))
            raise ConfigError(f"several items match {name!r}: {titles}", hint="name one by its id")
    else:
        raise ConfigError(f"unknown item {name!r}", hint=f"use a value of {recommender.served.item.name}, or a title")
    return {"item": _item(item), "k": k, **_answer(recommender, recommender.similar(item.id, k))}


def recommend_users(
    recommender: Recommender, query: Query, output: Path, *, users: Path | None = None, emit: Emit = ignore
) -> Written:
    """Write the top-k items of users: columns user, item, rank, score.

    Args:
        recommender: The recommender.
        query: Cut-off and filters for every user.
        output: A .parquet, .csv or .jsonl file, written atomically.
        users: File of raw user ids; None for all users of train.
        emit: Receives progress.

    Raises:
        ConfigError: The model cannot rank, a user is unknown, or the format is unknown.
        DataError: The file of users is unreadable.
    """
    served, start = recommender.served, time.monotonic()
    if (reason := recommender.scorer.why_not) is not None:
        raise ConfigError(f"{served.called} cannot recommend: {reason}")
    recommender.check(query)
    encoded = _users(recommender, users)
    places = recommender.places(query)
    num_rows = done = without = 0
    with TableWriter(output, served.users.values.type, served.items.values.type) as file:
        for block in recommend_to_all(
            recommender, encoded, k=int(query.k), places=places, exclude_seen=query.exclude_seen, diversity=query.diversity
        ):  # fmt: skip
            file.write(served.users.decode(block.users), served.items.decode(block.items), block.ranks, block.scores)
            num_rows, done = num_rows + len(block.items), done + block.num_users
            without += block.num_users - len(np.unique(block.users))
            emit(Progress("recommend", done, len(encoded), "users"))
    return Written(output, len(encoded), num_rows, without, time.monotonic() - start)


def recommend_histories(
    recommender: Recommender, query: Query, histories: Path, output: Path, *, emit: Emit = ignore
) -> Written:
    """Write the top-k items of users with the histories of a file; see `recommend_users`.

    Args:
        recommender: The recommender.
        query: Cut-off and filters for every user.
        histories: File of interactions with the user and the item column, in order of time.
        output: The file to write.
        emit: Receives progress.
    """
    served, start = recommender.served, time.monotonic()
    table = read_columns(histories, (served.user.name, served.item.name))
    lists: dict[Any, list[Any]] = {}
    for user, item in zip(*(column.to_pylist() for column in table.columns), strict=True):
        lists.setdefault(user, []).append(item)
    pairs, num_rows, without = list(lists.items()), 0, 0
    with TableWriter(output, table.column(0).type, served.items.values.type) as file:
        for first in range(0, len(pairs), _BLOCK):
            part = pairs[first : first + _BLOCK]
            answers = recommender.recommend([_with(query, user, history) for user, history in part])
            rows = [(user, one.item.id, rank, one.score) for (user, _), answer in zip(part, answers, strict=True)
                    for rank, one in enumerate(answer.items, start=1)]  # fmt: skip
            users, items, ranks, scores = zip(*rows, strict=True) if rows else ((), (), (), ())
            file.write(pa.array(users, table.column(0).type), pa.array(items, served.items.values.type),
                       np.array(ranks, np.int64), np.array(scores, np.float32))  # fmt: skip
            num_rows, without = num_rows + len(rows), without + sum(not answer.items for answer in answers)
            emit(Progress("recommend", first + len(part), len(pairs), "users"))
    return Written(output, len(pairs), num_rows, without, time.monotonic() - start)


def _with(query: Query, user: Any, history: Sequence[Any]) -> Query:
    return Query(**{**vars(query), "user": user, "history": history})


def _users(recommender: Recommender, path: Path | None) -> npt.NDArray[np.int64]:
    """Return the encoded users of a file, each once, or all of train."""
    served = recommender.served
    if path is None:
        return np.arange(FIRST, FIRST + served.users.num_train)
    raw = read_column(path, served.user.name)
    encoded = served.users.encode(raw)
    unknown = (encoded < FIRST) | (encoded >= served.users.cardinality)
    if unknown.any():
        shown = ", ".join(str(raw[row]) for row in np.flatnonzero(unknown)[:5])
        raise ConfigError(
            f"{path}: {int(unknown.sum()):,} of {len(raw):,} users are not in train: {shown}",
            hint="remove them, or give their histories: --history FILE",
        )
    first = np.sort(np.unique(encoded, return_index=True)[1])
    return encoded[first]


def _answer(recommender: Recommender, answer: Answer) -> dict[str, Any]:
    return {
        "model": recommender.served.source.name,
        "by": recommender.served.called,
        "source": answer.source,
        "num_seen": answer.num_seen,
        "note": answer.note,
        "items": [
            {"rank": rank, **_item(one.item), "score": one.score, "because": list(one.because)}
            for rank, one in enumerate(answer.items, start=1)
        ],
    }


def _item(item: CatalogItem) -> Mapping[str, Any]:
    return {"item": item.id, "title": item.title, "features": {n: list(v) for n, v in item.features.items()}}
