"""Feedback in memory: the latest event of each entry of a user, whatever the order of arrival."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from recsys_cli.serving.feedback.event import Entry, Event, Id


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
