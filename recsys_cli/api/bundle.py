"""A bundle that recommends and scores."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from recsys_cli.api.boundary import Count, check, public
from recsys_cli.api.recommendations import Recommendations, distinct
from recsys_cli.errors import ConfigError
from recsys_cli.serving.query import Answer, CatalogItem, Query

if TYPE_CHECKING:
    from recsys_cli.serving.recommender import Recommender


@public
def load_bundle(path: Path | str, *, verify: bool = False) -> LoadedBundle:
    """Load a bundle of `recsys export`.

    Args:
        path: The folder.
        verify: Compare the checksums of all files; otherwise sizes, and checksums of files up to 16 MiB.

    Raises:
        MissingArtifactError: The folder is no bundle, or a file is missing.
        DataError: A file is damaged.
    """
    from recsys_cli.serving.bundle import load_bundle as load

    return LoadedBundle(load(path, verify=verify))


class LoadedBundle:
    """A loaded bundle; calls of several threads wait for each other.

    Args:
        recommender: The recommender of the bundle.
    """

    def __init__(self, recommender: Recommender) -> None:
        self._recommender, self._one_call = recommender, threading.Lock()

    @public
    def recommend(
        self,
        users: Iterable[Any] | None = None,
        k: Count = 10,
        *,
        histories: Mapping[Any, Sequence[Any]] | None = None,
        **filters: Any,
    ) -> Recommendations:
        """Return the top-k items of users; a user absent from train gets the answer of the fallback.

        Args:
            users: Raw user ids; None for all users of train, or for those of `histories`.
            k: Cut-off.
            histories: Raw item ids by user, oldest first, in place of the stored histories.
            filters: Further fields of `Query`: candidates, exclude, exclude_seen, where, diversity, features.

        Raises:
            ConfigError: An argument is invalid.
        """
        import pyarrow as pa

        own = histories or {}
        if users is None:
            users = own if histories is not None else self._recommender.users(self._recommender.served.users.num_train)
        ids = distinct(users)
        query = _query(k, filters)
        answers = self.answer([replace(query, user=user, history=own.get(user)) for user in ids])
        rows = [
            (user, one.item.id, rank, one.score)
            for user, answer in zip(ids, answers, strict=True)
            for rank, one in enumerate(answer.items, start=1)
        ]
        columns = zip(*rows, strict=True) if rows else [()] * 4
        user, item, rank, score = columns
        served = self._recommender.served
        return Recommendations(
            pa.table({
                "user": pa.array(user) if rows else pa.array([], served.users.values.type),
                "item": pa.array(item, served.items.values.type),
                "rank": pa.array(rank, pa.int64()),
                "score": pa.array(np.array(score, np.float32)),
            })
        )  # fmt: skip

    @public
    def answer(self, queries: Iterable[Query]) -> list[Answer]:
        """Answer queries with titles, reasons, and the origin of the scores."""
        checked = [_checked(query) for query in queries]
        with self._one_call:
            return self._recommender.recommend(checked)

    @public
    def score(self, rows: Any) -> npt.NDArray[np.float32]:
        """Score raw rows, in their order; shape (N,).

        Args:
            rows: A mapping from column to values, a DataFrame, or an Arrow table, with the raw columns of the features.

        Raises:
            DataError: A column is missing, or a value does not fit its type.
        """
        if isinstance(rows, Mapping):
            check(self._recommender.score, {"rows": rows})
        else:
            from recsys_cli.etl.reading.rows import to_arrow

            table = to_arrow(rows)
            rows = {name: table.column(name).to_pylist() for name in table.column_names}
        with self._one_call:
            return self._recommender.score(rows)

    @public
    def similar(self, item: Any, k: Count = 10) -> Answer:
        """Return the nearest items of an item."""
        with self._one_call:
            return self._recommender.similar(item, k)

    @public
    def search(self, text: str, k: Count = 10) -> list[CatalogItem]:
        """Return items by a part of their title or id, most popular first."""
        with self._one_call:
            return self._recommender.catalog.search(text, k)


def _checked(query: Query) -> Query:
    check(Query, vars(query))
    return query


def _query(k: int, filters: Mapping[str, Any]) -> Query:
    try:
        return _checked(Query(k=k, **filters))
    except TypeError as error:
        raise ConfigError(
            f"unknown filter: {error}", hint="use candidates, exclude, exclude_seen, where, diversity or features"
        ) from error
