"""Events of the feedback log, one JSON line each with a checksum; and the feedback in memory after all of them."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["put", "delete", "hide", "show", "upsert"]
Id = int | str | float
Entry = tuple[str, str | None, float | None]
"""Item, kind and time of an interaction of a user; without a kind and a time the only feedback on the item."""
LATEST = 1e11
"""Latest time of an interaction, in seconds since 1970; that of now in milliseconds is above."""
COMMIT = b"\n"
"""A blank line after acknowledged lines. Readers of a file with a writer stop at the last one: a failed write is cut."""
_CHECKSUM = b',"crc":"'
_NEEDED = {"put": ("user", "item"), "delete": ("user",), "hide": ("item",), "show": ("item",), "upsert": ("item",)}


_FIELDS = ("user", "item", "label", "time", "event", "title", "features", "arm", "share")


@dataclass(frozen=True, slots=True)
class Event:
    """A change of the feedback.

    Attributes:
        kind: Feedback put, or deleted (of one item, or of all items of a user), or an item hidden, shown or upserted.
        at: Order of the event over all workers: nanoseconds since 1970, distinct.
        user: Raw user id; None for hide, show and upsert.
        item: Raw item id; None for all items of a user.
        label: Label of put feedback; None for a like without a label.
        time: Time of the interaction, in seconds since 1970.
        event: Kind of the interaction, such as purchase; None for the only feedback of its pair.
        title: Title of an upserted item; None without a new one.
        features: Raw values of an upserted item by column; None takes earlier upserts back.
        arm, share: Bundle of the user when feedback was put, and its share of the users; None in logs without arms.
    """

    kind: Kind
    at: int
    user: Id | None = None
    item: Id | None = None
    label: float | None = None
    time: float | None = None
    event: str | None = None
    title: str | None = None
    features: Mapping[str, Any] | None = None
    arm: str | None = None
    share: float | None = None

    @property
    def entry(self) -> Entry:
        """What a later event replaces: the feedback of the pair, or the same interaction of the same kind and time."""
        return (str(self.item), self.event, None if self.event is None else self.time)

    def order(self) -> tuple[float, int]:
        """Return the sort key of a history: the time of the interaction, or else of its arrival."""
        return (self.at / 1e9 if self.time is None else self.time, self.at)

    def line(self) -> bytes:
        """Return the line of the log, with its line end."""
        values = {name: getattr(self, name) for name in _FIELDS}
        given = {name: value for name, value in values.items() if value is not None}
        plain = json.dumps({**given, "kind": self.kind, "at": self.at}, separators=(",", ":")).encode()[:-1]
        return plain + _CHECKSUM + f'{zlib.crc32(plain):08x}"}}\n'.encode()


def parse(line: bytes) -> Event | None:
    """Return the event of a line without its line end; None for a damaged line."""
    end = line.rfind(_CHECKSUM)
    if end < 0 or line[end + len(_CHECKSUM) :] != f'{zlib.crc32(line[:end]):08x}"}}'.encode():
        return None
    try:
        event = Event(**json.loads(line[:end] + b"}"))
        return event if _is_sound(event) else None
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError):
        return None


def _is_sound(event: Event) -> bool:
    """Whether all values have their types: not only a server writes lines with a right checksum.

    Raises:
        ValueError: A text has a lone surrogate, which no table takes.
        TypeError: The kind is no text.
    """
    given = {name: value for name in ("user", "item", "label", "time") if (value := getattr(event, name)) is not None}
    numbers = [value for value in given.values() if not isinstance(value, str)]
    texts = [value for value in (event.user, event.item, event.event, event.title, event.arm) if isinstance(value, str)]
    return (
        set(_NEEDED[event.kind]) <= given.keys()
        and type(event.at) is int
        and 0 <= event.at < 2**63
        and not isinstance(event.label, str)
        and not isinstance(event.time, str)
        and all(type(value) in {int, float} and math.isfinite(value) for value in numbers)
        and 0 <= (event.time or 0) <= LATEST
        and isinstance(event.event, str | None)
        and isinstance(event.title, str | None)
        and isinstance(event.features, dict | None)
        and isinstance(event.arm, str | None)
        and (event.share is None or (type(event.share) in {int, float} and 0 < event.share <= 1))
        and all(text.encode() or not text for text in texts)
    )


def committed(content: bytes) -> bytes:
    """Return the lines up to the last commit; later ones may still be cut."""
    return b"".join(content.rpartition(b"\n" + COMMIT)[:2])


def lines_of(content: bytes) -> Iterator[Event | None]:
    """Yield the event of each complete line that is not blank; None for a damaged one."""
    start = 0
    while (end := content.find(b"\n", start)) >= 0:
        if end > start:
            yield parse(content[start:end])
        start = end + 1


class FeedbackState:
    """The feedback after all events so far. Ids are compared as text: 42 and "42" are one user.

    Attributes:
        num_events: Number of applied events.
        num_upserts: Number of upserts among them.
    """

    def __init__(self) -> None:
        self._entries: dict[str, dict[Entry, Event]] = {}
        self._deleted: dict[tuple[str, str | None], int] = {}
        self._visibility: dict[str, Event] = {}
        self._hidden: tuple[Id, ...] | None = ()
        self._upserts: dict[str, Event] = {}
        self.num_events = self.num_upserts = 0

    def apply(self, event: Event) -> None:
        """Apply an event; an older event than the present one of its entry changes nothing."""
        self.num_events += 1
        item, user = str(event.item), str(event.user)
        if event.kind in {"hide", "show"}:
            if (present := self._visibility.get(item)) is None or present.at < event.at:
                self._visibility[item] = event
                self._hidden = None
        elif event.kind == "upsert":
            self.num_upserts += 1
            if (present := self._upserts.get(item)) is None or present.at < event.at:
                self._upserts[item] = event
        elif event.kind == "delete":
            place = (user, None if event.item is None else item)
            self._deleted[place] = max(event.at, self._deleted.get(place, 0))
            deleted = [entry for entry, one in self._entries.get(user, {}).items()
                       if one.at < event.at and place[1] in {None, entry[0]}]  # fmt: skip
            for entry in deleted:
                del self._entries[user][entry]
        elif event.at > max(self._deleted.get((user, None), 0), self._deleted.get((user, item), 0)):
            entries = self._entries.setdefault(user, {})
            if (present := entries.get(event.entry)) is None or present.at < event.at:
                entries[event.entry] = event

    def of_user(self, user: Id) -> list[Event]:
        """Return the feedback of a user, oldest first; logs are read file by file, so arrival is no order."""
        return sorted(self._entries.get(str(user), {}).values(), key=Event.order)

    def has(self, user: Id, item: Id) -> bool:
        """Whether a user has feedback on an item."""
        return any(entry[0] == str(item) for entry in self._entries.get(str(user), {}))

    def holds(self, user: Id, item: Id, event: str | None, time: float | None) -> bool:
        """Whether a user has an entry."""
        return (str(item), event, time) in self._entries.get(str(user), {})

    @property
    def hidden(self) -> tuple[Id, ...]:
        """Raw ids of the hidden items."""
        if self._hidden is None:
            hidden = (event for event in self._visibility.values() if event.kind == "hide")
            self._hidden = tuple(event.item for event in hidden if event.item is not None)
        return self._hidden

    def is_hidden(self, item: Id) -> bool:
        """Whether an item is hidden."""
        event = self._visibility.get(str(item))
        return event is not None and event.kind == "hide"

    @property
    def upserts(self) -> Mapping[str, Event]:
        """The latest upsert of each item by its id as text, without those taken back."""
        return {item: event for item, event in self._upserts.items() if event.features is not None}

    def live(self) -> Iterator[Event]:
        """Yield the events that make up the state, without deletions."""
        for entries in self._entries.values():
            yield from entries.values()
        yield from (event for event in self._visibility.values() if event.kind == "hide")
        yield from self.upserts.values()
