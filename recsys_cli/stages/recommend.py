"""`recsys recommend`: recommendations for one request, or for many users into a file."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recsys_cli.errors import ConfigError
from recsys_cli.events import Emit, Message, Progress, ignore
from recsys_cli.features.schema import FIRST
from recsys_cli.serving.bundle import read_bundle
from recsys_cli.serving.every_user import Block, parts_of, recommend_to_all
from recsys_cli.serving.query import Answer, CatalogItem, Query
from recsys_cli.serving.recommender import Recommender
from recsys_cli.serving.requests import seen_last
from recsys_cli.stages.cluster import open_once
from recsys_cli.stages.export import served_run
from recsys_cli.stages.tables import Write, read_column, read_columns, table_writer
from recsys_cli.workspace import Bundle, TrainedRun, Workspace


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
    elif not name.isdecimal() and (found := recommender.catalog.search(name, 2)):
        item = found[0]
        if len(found) > 1 and (found[0].title or "").casefold() != name.casefold():
            titles = "; ".join(f"{one.id} ({one.title})" for one in recommender.catalog.search(name, 5))
            raise ConfigError(f"several items match {name!r}: {titles}", hint="name one by its id")
    else:
        raise ConfigError(f"unknown item {name!r}", hint=f"use a value of {recommender.served.item.name}, or a title")
    return {"item": _item(item), "k": k, **_answer(recommender, recommender.similar(item.id, k))}


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


_JOIN = "; "
_BLOCK = 1_024
"""Queries answered at once where users are unknown or come with their histories."""

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Ranked:
    """Columns of a block of the file, and its numbers of users, of rows and of users with rows."""

    columns: tuple[Any, ...]
    num_users: int
    rows: int
    answered: int


@dataclass(frozen=True)
class Written:
    """Result of recommendations in a file.

    Attributes:
        output: The file.
        users: Number of users.
        rows: Number of recommendations.
        without: Number of users without any.
        popular: Number of users with the most popular items.
        why_popular: Reason for these; None without such users.
        skipped: Number of interactions in a file of histories with an item that is not in train.
        seconds: Duration.
    """

    output: Path
    users: int
    rows: int
    without: int
    popular: int
    why_popular: str | None
    skipped: int
    seconds: float


@dataclass(frozen=True)
class RankedPart:
    """The top-k items of a part of the users, as blocks of columns: a task of an executor.

    Attributes:
        source: The run or the bundle.
    """

    source: TrainedRun | Bundle
    workspace: Workspace
    query: Query
    command: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __call__(self, users: Ints) -> list[Ranked]:
        """Rank for the users, by a recommender that is opened once per process."""
        with open_once(self.command, partial(open_recommender, self.source, self.workspace)) as recommender:
            return list(_ranked(recommender, self.query, users))


def _ranked(recommender: Recommender, query: Query, users: Ints) -> Iterator[Ranked]:
    """Yield blocks of recommendations for trained users."""
    served, (places, _) = recommender.served, recommender.places(query)
    for block in recommend_to_all(
        recommender, users, k=int(query.k), places=places, exclude_seen=query.exclude_seen, diversity=query.diversity
    ):
        titles = [] if served.titles is None else [served.titles.take(pa.array(served.items.positions_of(block.items)))]
        reasons = [_reasons(recommender, block)] if query.explain else []
        named = served.users.decode(block.users), served.items.decode(block.items), *titles
        columns = (*named, block.ranks, block.scores, ["model"] * len(block.items), *reasons)
        yield Ranked(columns, block.num_users, len(block.items), len(np.unique(block.users)))


def recommend_users(
    recommender: Recommender,
    query: Query,
    output: Path,
    *,
    users: Path | None = None,
    rank: Callable[[list[Ints]], Iterable[list[Ranked]]] | None = None,
    emit: Emit = ignore,
) -> Written:
    """Write the top-k items of users: user, item, title (if any), rank, score, source, reasons; unknown users are last.

    The query counts for every user, and `rank` ranks parts of the trained ones elsewhere, by `RankedPart`. Without a file of
    users these are all of train.

    Raises:
        ConfigError: The model cannot rank, all users are unknown, or the format is unknown.
        DataError: The file of users is unreadable.
    """
    served = recommender.served
    if (reason := recommender.scorer.why_not) is not None:
        raise ConfigError(f"{served.called} cannot recommend: {reason}")
    places, notes = recommender.places(query)
    for note in notes:
        emit(Message(note))
    encoded, others = _users(recommender, users)
    kind = others.type if len(others) else served.users.values.type
    with table_writer(output, _schema(recommender, kind, query)) as write:
        bulk = _Bulk(recommender, write, len(encoded) + len(others), emit)
        here = [_ranked(recommender, query, encoded)]
        for block in chain.from_iterable(rank(parts_of(recommender, encoded, places)) if rank else here):
            write(*block.columns)
            bulk.count(block.num_users, block.rows, block.answered)
        bulk.answer(query, [(user, None) for user in others.to_pylist()])
    return bulk.written(query, output)


def recommend_histories(
    recommender: Recommender, query: Query, histories: Path, output: Path, *, emit: Emit = ignore
) -> Written:
    """Write the top-k items of users with the histories of a file, in order of time; see `recommend_users`."""
    served = recommender.served
    names = (served.user.name, served.item.name)
    raw_users, items = (column.to_pylist() for column in read_columns(histories, names).columns)
    users = _typed(raw_users, served.users.values.type)
    lists: dict[Any, list[Any]] = {}
    for user, item in zip(users.to_pylist(), items, strict=True):
        lists.setdefault(user, []).append(item)
    encoded = served.items.encode(items)
    skipped = int(((encoded < FIRST) | served.cold.among(encoded)).sum())
    with table_writer(output, _schema(recommender, users.type, query)) as write:
        bulk = _Bulk(recommender, write, len(lists), emit, skipped)
        bulk.answer(query, list(lists.items()))
    return bulk.written(query, output)


@dataclass
class _Bulk:
    """Rows written to a file, and their numbers."""

    recommender: Recommender
    write: Write
    users: int
    emit: Emit
    skipped: int = 0
    done: int = 0
    rows: int = 0
    answered: int = 0
    popular: int = 0
    start: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.count(0, 0, 0)  # the first users may take minutes

    def answer(self, query: Query, pairs: Sequence[tuple[Any, Sequence[Any] | None]]) -> None:
        """Answer and write pairs of user and history; None for the stored history."""
        for first in range(0, len(pairs), _BLOCK):
            part = pairs[first : first + _BLOCK]
            answers = self.recommender.recommend([_with(query, user, history) for user, history in part])
            titled = self.recommender.served.titles is not None
            rows = [(user, one.item.id, *([one.item.title] if titled else []), rank, one.score, answer.source,
                     *([_JOIN.join(one.because)] if query.explain else []))
                    for (user, _), answer in zip(part, answers, strict=True)
                    for rank, one in enumerate(answer.items, start=1)]  # fmt: skip
            if rows:
                self.write(*zip(*rows, strict=True))
            self.popular += sum(answer.source == "popularity" for answer in answers)
            self.count(len(part), len(rows), sum(bool(answer.items) for answer in answers))

    def count(self, users: int, rows: int, answered: int) -> None:
        """Add numbers of users, rows and users with rows, and report progress."""
        self.done, self.rows, self.answered = self.done + users, self.rows + rows, self.answered + answered
        self.emit(Progress("recommend", self.done, self.users, "users"))

    def written(self, query: Query, output: Path) -> Written:
        """Return the result, and report what holds for all users."""
        for note in seen_last(self.recommender.served, query):
            self.emit(Message(note))
        why = _why_popular(self.recommender) if self.popular else None
        seconds, without = time.monotonic() - self.start, self.users - self.answered
        return Written(output, self.users, self.rows, without, self.popular, why, self.skipped, seconds)


def _why_popular(recommender: Recommender) -> str:
    """Return the reason for popularity in place of the model."""
    name = recommender.served.source.name
    if (reason := recommender.scorer.why_not) is not None:
        return f"{name} cannot rank: {reason}"
    if recommender.served.takes_histories:
        return "they have no history of known items"
    return f"they are not in train, and {name} cannot fold in a history"


def _reasons(recommender: Recommender, block: Block) -> list[str]:
    """Return the reasons of each row of a block."""
    places = recommender.catalog.places(block.items)
    starts = np.flatnonzero(np.diff(block.users, prepend=-1))
    histories = (recommender.served.histories.of_user(int(user)) for user in block.users[starts])
    parts = zip(histories, np.split(places, starts[1:]), strict=False)
    return [_JOIN.join(one) for history, own in parts for one in recommender.scorer.reasons(history, own)]


def _schema(recommender: Recommender, user: pa.DataType, query: Query) -> pa.Schema:
    types: Mapping[str, pa.DataType] = {
        "user": user, "item": recommender.served.items.values.type,
        **({} if recommender.served.titles is None else {"title": pa.string()}),
        "rank": pa.int32(), "score": pa.float32(), "source": pa.string(),
        **({"because": pa.string()} if query.explain else {}),
    }  # fmt: skip
    return pa.schema(list(types.items()))


def _with(query: Query, user: Any, history: Sequence[Any] | None) -> Query:
    return Query(**{**vars(query), "user": user, "history": history})


def _users(recommender: Recommender, path: Path | None) -> tuple[Ints, pa.Array]:
    """Return the users of a file, each once, or all of train: encoded ones with a score of the model, and raw others."""
    served = recommender.served
    if path is None:
        given = served.users.values.slice(0, served.users.num_train).is_valid()  # null is forgotten
        encoded = FIRST + np.flatnonzero(given)
        raw: list[Any] | None = None
    else:
        raw = read_column(path, served.user.name, "user")
        encoded = served.users.encode(raw)
    trained = (encoded >= FIRST) & (encoded < served.users.cardinality)
    if raw is not None and not trained.any():
        shown = ", ".join(str(user) for user in raw[:5])
        raise ConfigError(
            f"{path}: none of the {len(raw):,} users is in train: {shown}",
            hint=f"use values of {served.user.name}, or give their histories: --history FILE",
        )
    first = np.sort(np.unique(encoded[trained], return_index=True)[1])
    known = encoded[trained][first]
    scored = np.ones(len(known), bool)
    if served.model.folds_in:
        have = served.have_history()
        scored = have[np.where(known < len(have), known, 0)]
    others = served.users.decode(known[~scored]).to_pylist()
    if raw is not None:
        others += dict.fromkeys(raw[row] for row in np.flatnonzero(~trained))
    return known[scored], _typed(others, served.users.values.type)


def _typed(users: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return raw users in the type of the data, or else as text."""
    try:
        return pa.array(users).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return pa.array([None if user is None else str(user) for user in users], pa.string())
