"""Work that waits for a model thread: units by kind, and the measured seconds of a unit."""

from __future__ import annotations

import time
from contextvars import ContextVar
from typing import Literal

from recsys_cli.serving.query import Query

Kind = Literal["queries", "rows", "calls"]
QUERY, ROW, CALL = 1_000, 20, 1_000
"""Units of a query without ids, of a raw row and of a call. An id to look up and a pair to score are one unit each."""
_ITEM, _REASON = 5, 50
"""Units of a recommended item, and of its reasons or its diversity."""
ARRIVED: ContextVar[float] = ContextVar("arrived")
"""Start of the request, as of `time.perf_counter`."""
_RESERVE = 0.2
"""Share of the time of a request for its answer on the way back, and for errors of the expectation."""
_KEPT = 0.9
"""Weight of the earlier measurements at a new one."""


class Work:
    """Work of one model thread. The event loop adds it, the model thread finishes and measures it.

    Args:
        seconds: Expected seconds of a unit before the first measurement.
        limit: Time of a request, in seconds.
    """

    def __init__(self, seconds: float, *, limit: float) -> None:
        self._limit = limit
        kinds: tuple[Kind, ...] = ("queries", "rows", "calls")
        self._added, self._finished = dict.fromkeys(kinds, 0), dict.fromkeys(kinds, 0)
        self._measured: dict[Kind, tuple[float, float]] = dict.fromkeys(kinds, (seconds * QUERY, QUERY))

    def add(self, kind: Kind, units: int) -> None:
        """Add units that wait."""
        self._added[kind] += units

    def finish(self, kind: Kind, units: int) -> None:
        """Remove units, answered or not."""
        self._finished[kind] += units

    def measure(self, kind: Kind, units: int, seconds: float) -> None:
        """Measure answered units; large batches and the latest ones count most."""
        before, number = self._measured[kind]
        self._measured[kind] = before * _KEPT + seconds, number * _KEPT + units

    def seconds_of(self, kind: Kind, units: int) -> float:
        """Return the expected seconds of some units."""
        seconds, measured = self._measured[kind]
        return units * seconds / measured

    def is_late(self, seconds: float) -> bool:
        """Whether work with an end in some seconds is late for the request of this context."""
        left = ARRIVED.get(now := time.perf_counter()) + self._limit - now
        return seconds > left - self._limit * _RESERVE

    @property
    def waiting(self) -> float:
        """Expected seconds of all that waits, and of the batch under way."""
        return sum(self.seconds_of(kind, added - self._finished[kind]) for kind, added in self._added.items())


def units_of(query: Query, num_items: int, *, by_pair: bool) -> int:
    """Return the units of a query: ids to look up, pairs to score, and items to return.

    Args:
        query: The query.
        num_items: Items of the catalog.
        by_pair: Whether the model scores pairs, so that candidates are not a part of the scores of the catalog.
    """
    ids = sum(len(part or ()) for part in (query.history, query.candidates, query.exclude, query.recent))
    pairs = (num_items if query.candidates is None else len(query.candidates)) if by_pair or query.features else 0
    each = _ITEM + _REASON * (query.explain + (query.diversity > 0))
    return QUERY + ids + pairs + each * min(query.k, num_items)
