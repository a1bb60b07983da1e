"""Requests for recommendations and their answers, in raw ids; the same for commands, Python and servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

Source = Literal["model", "fold-in", "popularity", "none"]
"""Origin of an answer: the trained user, a history folded in on request, the popularity fallback, or no items at all."""


@dataclass(frozen=True)
class RecentInteraction:
    """An interaction after training, such as feedback of a second ago.

    Attributes:
        item: Raw item id.
        label: Value of the label; of a binary label, positive if above 0. None for a positive.
        time: Seconds since 1970; None for a time after the stored history.
    """

    item: Any
    label: float | None = None
    time: float | None = None


Recent = Mapping[Any, Sequence[RecentInteraction]]
"""Interactions after training, oldest first, by raw user id as the rows have it."""
NO_RECENT: Recent = MappingProxyType({})


@dataclass(frozen=True)
class Query:
    """A request for the top-k items of one user.

    Attributes:
        user: Raw user id; None for an anonymous user.
        history: Raw item ids, oldest first, in place of the stored history of the user; None for the stored one.
        recent: Interactions after training, oldest first, added to the stored history by time; without effect on a `history`
            of the request.
        features: Raw values of user and context features by column, for models with features.
        k: Cut-off.
        candidates: Raw ids of the only items to rank; None for the catalog.
        exclude: Raw ids of items to leave out.
        exclude_seen: Leave out the items of the history; None for what the model was evaluated on (`evaluate.repeats`).
        where: Filter expression over the item features; None for all items.
        diversity: Weight of diversity in a maximal-marginal-relevance reranking, from 0 (none) to 1.
        explain: Add reasons.
    """

    user: Any = None
    history: Sequence[Any] | None = None
    recent: Sequence[RecentInteraction] = ()
    features: Mapping[str, Any] = field(default_factory=dict)
    k: int = 10
    candidates: Sequence[Any] | None = None
    exclude: Sequence[Any] = ()
    exclude_seen: bool | None = None
    where: str | None = None
    diversity: float = 0.0
    explain: bool = False

    def __post_init__(self) -> None:
        """Take arrays and columns of ids as lists."""
        for name in ("history", "candidates", "exclude"):
            ids = getattr(self, name)
            as_list = getattr(ids, "tolist", None) or getattr(ids, "to_list", None)
            if as_list is not None:
                object.__setattr__(self, name, as_list())

    @property
    def brings_history(self) -> bool:
        """Whether the history differs from the stored one."""
        return self.history is not None or bool(self.recent)


@dataclass(frozen=True)
class CatalogItem:
    """An item of the catalog.

    Attributes:
        id: Raw id.
        title: Title; None without one.
        features: Raw feature values by column.
    """

    id: Any
    title: str | None = None
    features: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class RecommendedItem:
    """A recommended item.

    Attributes:
        item: The item.
        score: Score of the model; of the fallback, the number of interactions, or the score of the model `popularity`.
        because: Titles or ids of the nearest items of the history, such as the item itself, or feature values; empty without
            `Query.explain` and for the fallback.
    """

    item: CatalogItem
    score: float
    because: Sequence[str] = ()


@dataclass(frozen=True)
class Answer:
    """Top-k items for one query, best first.

    Attributes:
        items: The items; may be fewer than k.
        source: Origin of the scores.
        num_seen: Number of seen items left out.
        note: Reason for a fallback or an empty list; None otherwise.
    """

    items: Sequence[RecommendedItem]
    source: Source
    num_seen: int = 0
    note: str | None = None
