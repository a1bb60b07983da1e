"""Roles of the columns of a table, by name and content, each with a reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from recsys_cli.detect.names import (
    ALIASES,
    EVENT_WEIGHTS,
    NEGATIVE_EVENTS,
    NO_EVENT_WORDS,
    POSITIVE_TEXTS,
    simplified,
    words,
)
from recsys_cli.detect.profiles import Profile
from recsys_cli.features.schema import TICKS

_MOST_RATINGS, _HIGHEST, _DAYS = 500, 100, 31
_ANONYMOUS = 0.3
"""Share of rows without a user above which sessions take its place."""
_OWN_TITLES, _LONGEST_TITLE = 0.8, 100
ENOUGH = 20
"""Rows below which content says nothing."""
USER_WORDS = frozenset({
    "user", "customer", "visitor", "member", "reviewer", "client", "shopper", "buyer", "listener", "reader", "viewer",
    "account", "person", "patient", "student", "guest", "player", "users", "household", "profile", "subscriber", "learner",
    "passenger", "employee", "candidate", "investor",
})  # fmt: skip
ITEM_WORDS = frozenset({
    "item", "movie", "product", "article", "book", "song", "track", "artist", "video", "game", "recipe", "course", "hotel",
    "post", "news", "job", "ad", "film", "show", "content", "venue", "restaurant", "business", "items", "sku", "listing",
    "place", "poi", "property", "anime", "manga", "paper", "app", "podcast", "album", "beer", "wine", "question", "exercise",
    "bookmark", "joke",
})  # fmt: skip
_MEASURE_WORDS = frozenset({"count", "counts", "num", "total", "avg", "mean", "length", "size", "price", "status"})
_TIME_WORDS = frozenset({"date", "day", "week", "month", "year", "time", "timestamp"})
"""Words in names of times, which are no items."""
_NO_ITEM_WORDS = _MEASURE_WORDS | {"category", "type", "group", "brand", "department", "class", "genre"}
"""Words of names that describe users or items, such as item_id-count."""
_ID_WORDS = frozenset({"id", "key", "code", "uuid", "guid", "hash", "no", "number", "nr", "sk"})

TARGETS = ("label", "rating", "event", "count")
"""Roles of signals of interest, the clearest first."""
_KEY_WORDS = _ID_WORDS | USER_WORDS | ITEM_WORDS
_CLOCK = (631_152_000, 2_051_222_400)
"""Seconds of the years 1990 and 2035."""


@dataclass(frozen=True)
class Role:
    """The column of a role, with the reason."""

    column: str
    reason: str


Roles = Mapping[str, Role]


def roles(
    columns: Mapping[str, Profile], given: Mapping[str, str | None], *, headless: bool = False
) -> dict[str, Role]:
    """Return the column of each role found; `given` roles come first."""
    found = {role: Role(column, "given") for role, column in given.items() if column and column in columns}
    for role, names in ALIASES.items():
        if role in found or (role in {"rating", "label"} and {"rating", "label"} & set(given) & set(found)):
            continue
        taken = {one.column for one in found.values()}
        free = {name: one for name, one in columns.items() if name not in taken and _FITS[role](one)}
        if (column := _by_name(role, names, free)) is not None:
            found[role] = Role(column, f"its name, and {_content(role, columns[column])}")
    for role, by_content in _BY_CONTENT.items():
        if role not in found and max((one.rows for one in columns.values()), default=0) >= ENOUGH:
            taken = {one.column for one in found.values()}
            free = {name: one for name, one in columns.items() if name not in taken}
            if not headless:  # numbers may mean anything
                free = {name: one for name, one in free.items() if not one.is_numeric or _is_clock(one)}
            if (role in _WITH_HEADER or headless) and (column := by_content(free)) is not None:
                found[role] = Role(column, _content(role, columns[column]))
    _drop_rare_users(columns, found, given)
    if "item" not in found and (rest := _last_id(columns, found)) is not None:
        found = {role: one for role, one in found.items() if one.column != rest}  # items named by their titles
        found["item"] = Role(rest, f"the only other column that may have ids, and {_content('item', columns[rest])}")
    return _consistent(found, given)


def _drop_rare_users(columns: Mapping[str, Profile], found: dict[str, Role], given: Mapping[str, str | None]) -> None:
    """Drop the role of a user that most sessions lack."""
    if {"user", "session"} <= set(found) and not given.get("user"):
        user = columns[found["user"].column]
        if user.nulls > _ANONYMOUS * user.rows:
            del found["user"]


def _last_id(columns: Mapping[str, Profile], found: Mapping[str, Role]) -> str | None:
    """Return the one column left for the item where the user and a rating, event or time are known; or the only list of a user."""
    if not {"user", "session"} & set(found):
        return None
    taken = {role.column for name, role in found.items() if name != "title"}
    left = [
        name
        for name, one in columns.items()
        if name not in taken and (one.is_list or one.unique > 2) and one.rows >= ENOUGH
    ]
    lists = [name for name in left if columns[name].is_list]
    if not {*TARGETS, "timestamp"} & set(found):
        return lists[0] if len(lists) == 1 == len(left) else None
    ids = [name for name in left if _is_id(columns[name]) and columns[name].time is None]
    ids = [name for name in ids if not (_MEASURE_WORDS | _TIME_WORDS) & set(words(name))]
    choice = [name for name in ids if not _NO_ITEM_WORDS & set(words(name))] or ids or lists
    return choice[0] if len(choice) == 1 else None


def _consistent(found: dict[str, Role], given: Mapping[str, str | None]) -> dict[str, Role]:
    """Drop roles that others outweigh: one of label, rating, event and count remains."""
    targets = [role for role in TARGETS if role in found]
    targets.sort(key=lambda role: not given.get(role))
    for weaker in targets[1:]:
        del found[weaker]
    for role, is_idle in (
        ("session", "user" in found), ("order", "timestamp" in found), ("impression", not {"item", "label"} <= set(found)),
    ):  # fmt: skip
        if role in found and is_idle:
            del found[role]
    return found


def _by_name(role: str, names: tuple[str, ...], free: Mapping[str, Profile]) -> str | None:
    simple = {simplified(name): name for name in reversed(list(free))}
    if exact := next((simple[name] for name in names if name in simple), None):
        return exact
    wanted = {"user": USER_WORDS, "item": ITEM_WORDS, "session": frozenset({"session", "basket", "visit"})}.get(role)
    if wanted is None:
        return None
    of_words = {name: set(words(name)) for name in free}
    return next(
        (name for name, one in of_words.items() if wanted & one and _ID_WORDS & one and not _NO_ITEM_WORDS & one), None
    )


def _enough(column: Profile) -> bool:
    return column.rows >= ENOUGH


def _is_label(column: Profile) -> bool:
    if column.kind == "text":
        return column.unique == 2 and column.nulls == 0 and positive_text(column) is not None
    return column.is_binary and (column.unique == 2 or not _enough(column)) and column.nulls == 0


def positive_text(column: Profile) -> str | None:
    """Return the positive one of two texts, such as "yes" of "yes" and "no"."""
    found = [value for value in column.values if simplified(value) in POSITIVE_TEXTS]
    return found[0] if len(found) == 1 and column.kind == "text" else None


def _is_rating(column: Profile) -> bool:
    is_named = (
        simplified(column.name) in {"rating", "ratings", "stars"}
        and max(abs(column.low or 0), column.high or 0) <= _HIGHEST
    )
    return (
        column.is_numeric
        and (column.unique > 1 or not _enough(column))
        and (is_named or column.unique <= _MOST_RATINGS)
    )


def _is_day_of_month(column: Profile) -> bool:
    return simplified(column.name) in {"day", "tag"} and (column.high or 0) <= _DAYS


def _is_event(column: Profile) -> bool:
    names = {simplified(value) for value in column.values}
    return column.kind == "text" and 0 < column.unique <= 30 and bool(names & (set(EVENT_WEIGHTS) | NEGATIVE_EVENTS))


def _is_id(column: Profile) -> bool:
    return column.may_be_id and column.time in {None, "s", "ms", "us", "ns"} and column.unique > 0


def _is_named_id(column: Profile) -> bool:
    """Whether a column with the name of an id may be one: numbers such as 17.0 as well."""
    return _is_id(column) or (column.kind == "number" and column.is_whole and column.unique > 0)


_FITS: dict[str, Callable[[Profile], bool]] = {
    "user": _is_named_id, "session": _is_named_id,
    "item": lambda one: _is_named_id(one) or one.is_list,
    "label": _is_label, "rating": _is_rating,
    "count": lambda one: one.is_numeric and (one.high or 0) > 1 and one.unique > 1,  # negative ones are returns
    "event": _is_event,
    "timestamp": lambda one: (one.is_numeric and not _is_day_of_month(one)) or one.time is not None,
    "impression": lambda one: _is_id(one) and not one.is_key,
    "order": lambda one: one.kind == "integer" and (one.low or 0) >= 0 and one.unique > 1 and not one.is_binary,
    "title": lambda one: one.kind == "text" and one.separator is None,
}  # fmt: skip


_HIGHEST_BARE = 10
"""Highest rating that is guessed without a name."""
_MANY_COLUMNS = 10
"""Columns of a file without a header above which ids are not guessed by position: a log of features."""


def _ids(free: Mapping[str, Profile]) -> list[str]:
    """Return the columns that may name users or items, of values that recur."""
    if len(free) > _MANY_COLUMNS:
        return []
    return [
        name
        for name, one in free.items()
        if _is_id(one) and one.time is None and one.separator is None and one.unique > 2 and one.unique < one.rows
    ]


def _rating_by_content(free: Mapping[str, Profile]) -> str | None:
    scales = (name for name, one in free.items() if _is_scale(one))
    return next((name for name in scales if len(_ids({at: one for at, one in free.items() if at != name})) > 1), None)


def _is_scale(one: Profile) -> bool:
    """Whether numbers may be ratings: of few values from 0, or with fractions on both sides of 0."""
    low, high = one.low or 0, one.high or 0
    is_two_sided = one.kind == "number" and not one.is_whole and -_HIGHEST_BARE <= low < 0 < high
    return one.is_numeric and high <= _HIGHEST_BARE and (is_two_sided or (3 <= one.unique <= 21 and low >= 0))


def _is_clock(column: Profile) -> bool:
    """Whether all numbers are times of the last decades, and no id by name."""
    if _KEY_WORDS & set(words(column.name)):
        return False
    if column.are_hours:
        return column.rows >= ENOUGH
    ticks = TICKS.get(str(column.time))
    if ticks is None or column.unique < ENOUGH:
        return False
    return _CLOCK[0] * ticks <= (column.low or 0) <= (column.high or 0) < _CLOCK[1] * ticks


def _are_titles(column: Profile) -> bool:
    is_own = column.unique > _OWN_TITLES * column.filled
    is_coded = any("://" in one or one[:1] in "[{" for one in column.samples)
    is_short = column.length <= _LONGEST_TITLE
    return column.kind == "text" and not column.is_list and column.has_spaces and is_own and is_short and not is_coded


_Choice = Callable[[Mapping[str, Profile]], str | None]


def _first(fits: Callable[[Profile], bool]) -> _Choice:
    return lambda free: next((name for name, one in free.items() if fits(one)), None)


title_of = _first(_are_titles)
"""Return the first column in which almost each row has its own short text, some of several words."""
_BY_CONTENT: dict[str, _Choice] = {
    "timestamp": _first(
        lambda one: bool(one.time or one.are_hours) and one.unique > 2 and not NO_EVENT_WORDS & set(words(one.name))
    ),
    "event": _first(_is_event),
    "rating": _rating_by_content,
    "label": _first(lambda one: one.is_binary and one.unique == 2 and not one.nulls),
    "title": title_of,  # before the ids: a few titles recur
    "user": lambda free: next(iter(_ids(free)), None),
    "item": lambda free: next(iter(_ids(free)), None),
}
_WITH_HEADER = frozenset({"event", "timestamp"})
"""Roles that content settles even against a header; the others only in files without one."""


def _content(role: str, one: Profile) -> str:
    if one.kind == "list":
        return f"lists of {one.length:.1f} of {one.elements:,} values"
    match role:
        case "user" | "item" | "session" | "impression":
            return f"{one.unique:,} values, {one.filled / max(1, one.unique):.1f} rows each"
        case "timestamp":
            return f"times ({one.time})" if one.time else "numbers in order"
        case "rating" | "count":
            return f"numbers from {one.low:g} to {one.high:g}"
        case "label":
            return "only 0 and 1" if one.is_numeric else f"only {' and '.join(one.values)}"
        case "event":
            return f"{one.unique} kinds of events"
        case "order":
            return f"numbers from {one.low:g} to {one.high:g}, and no time"
    return "short texts"
