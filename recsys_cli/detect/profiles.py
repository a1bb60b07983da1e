"""Profiles of columns: type, range, number of values, time format, separator of lists."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.detect.names import ALIASES, simplified
from recsys_cli.errors import DataError
from recsys_cli.etl.reading.times import text_format, unit_of

Kind = Literal["integer", "number", "text", "list", "time", "empty"]
_SHOWN = 3
_FEW_ODD = 0.02
"""Share of other texts among numbers that is a defect of the file."""
_TIME_SAMPLE = 2_000
_SECONDS = (631_152_000, 4_200_000_000)
_LIST_MARKS = ("|", " ", ",", ";")
_PROSE, _FIRST_TOO = ", ", 0.5
"""Separator of parts of sentences as well, and the least share of its later elements that come first in other lists."""
_LONGEST_ID, _LONGEST_HASH = 40, 128
_IMPRESSIONS = r"^\S+-[01]( \S+-[01])*$"


@dataclass(frozen=True)
class Profile:
    """A column of a sample.

    Attributes:
        unique: Number of distinct values without nulls.
        low: Smallest number.
        high: Largest number.
        time: Format of the values as times, as in the dataset's `times`; None if they are none.
        separator: Separator of the elements of text lists.
        elements: Number of distinct elements of lists.
        compound: A text that is a list of other elements with another separator; None without one.
        length: Mean number of characters of text, or of elements of lists.
        width: Length of all lists of numbers with fractions; 0 for lists of several lengths, None for other columns.
        is_whole: Whether all numbers are integers.
        values: The distinct values as text, for small numbers of them.
        are_hours: Whether the numbers are hours, such as 14102100.
        has_spaces: Whether texts have spaces.
        odd: A text that is no number where nearly all others are; None otherwise.
        is_impressions: Whether the values are candidates with clicks, such as "N1-0 N2-1".
    """

    name: str
    kind: Kind
    rows: int
    nulls: int
    unique: int
    samples: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    time: str | None = None
    separator: str | None = None
    elements: int = 0
    compound: str | None = None
    length: float = 0.0
    width: int | None = None
    is_whole: bool = False
    values: tuple[str, ...] = ()
    is_impressions: bool = False
    are_hours: bool = False
    has_spaces: bool = False
    odd: str | None = None

    @property
    def filled(self) -> int:
        """Number of values."""
        return self.rows - self.nulls

    @property
    def is_numeric(self) -> bool:
        """Whether the values are numbers."""
        return self.kind in {"integer", "number"}

    @property
    def type_but_for_odd(self) -> str:
        """Type of the numbers among which a text is odd."""
        return "int64" if all(re.fullmatch(r"[+-]?\d+", one) for one in self.samples if one != self.odd) else "float64"

    @property
    def is_binary(self) -> bool:
        """Whether the values are 0 and 1 only."""
        return self.is_numeric and {self.low, self.high} <= {0.0, 1.0} and self.unique <= 2

    @property
    def is_list(self) -> bool:
        """Whether each value holds several elements."""
        return self.kind == "list" or self.separator is not None

    @property
    def is_key(self) -> bool:
        """Whether each row has its own value."""
        return self.filled > 0 and self.unique == self.filled == self.rows

    @property
    def may_be_id(self) -> bool:
        """Whether values may name users or items: integers or short texts."""
        longest = _LONGEST_ID if self.has_spaces else _LONGEST_HASH
        return self.kind == "integer" or (self.kind == "text" and not self.is_impressions and self.length <= longest)


def profiles(rows: pa.Table) -> dict[str, Profile]:
    """Return the profile of each column."""
    return {name: profile(name, rows.column(name)) for name in rows.column_names}


def mean(values: pl.Series) -> float:
    """Return the mean of numbers or truths; 0 for none."""
    total = values.cast(pl.Float64).mean()
    return float(total) if isinstance(total, int | float) else 0.0


def profile(name: str, values: pa.ChunkedArray) -> Profile:
    """Return the profile of a column."""
    if pa.types.is_null(values.type) or values.null_count == len(values):
        return Profile(name, "empty", len(values), len(values), 0)
    series = pl.Series(name, pl.from_arrow(values.combine_chunks()))
    filled = series.drop_nulls()
    size: dict[str, Any] = {"rows": len(series), "nulls": series.null_count()}
    if isinstance(filled.dtype, pl.List):
        elements = filled.explode().drop_nulls()
        samples = tuple(str(one.to_list())[:40] for one in filled.head(_SHOWN))
        lengths = filled.list.len().unique().to_list()
        return Profile(
            name, "list", **size, unique=0, samples=samples, elements=elements.n_unique(), length=mean(filled.list.len()),
            width=(lengths[0] if len(lengths) == 1 else 0) if elements.dtype.is_float() else None,
            is_impressions=elements.dtype == pl.String and mean(elements.str.contains(r"^\S+-[01]$")) > 0.9,
        )  # fmt: skip
    unique = filled.unique(maintain_order=True)
    shown: dict[str, Any] = {"unique": len(unique), "samples": tuple(str(one)[:40] for one in unique.head(_SHOWN))}
    if len(unique) <= 30:
        shown["values"] = tuple(map(str, unique.to_list()))
    if filled.dtype.is_temporal():
        return Profile(name, "time", **size, **shown, time="iso")
    if filled.dtype == pl.Boolean:
        filled = filled.cast(pl.Int8)
    if filled.dtype.is_numeric():
        return _number(name, filled, size, shown)
    if filled.dtype == pl.String:
        return _text(name, values, filled, size, shown)
    return Profile(name, "text", **size, **shown)


def _number(name: str, filled: pl.Series, size: dict[str, Any], shown: dict[str, Any]) -> Profile:
    numbers = filled.to_numpy().astype(np.float64)
    numbers = numbers[np.isfinite(numbers)]
    if not len(numbers):
        return Profile(name, "empty", size["rows"], size["rows"], 0)
    whole = bool((numbers == np.rint(numbers)).all())
    unit = _unit(numbers)
    kind: Kind = "integer" if filled.dtype.is_integer() or (whole and size["nulls"]) else "number"
    return Profile(
        name, kind, **size, **shown, low=float(numbers.min()), high=float(numbers.max()), time=unit, is_whole=whole,
        are_hours=whole and _are_hours(numbers),
    )  # fmt: skip


def _text(
    name: str, values: pa.ChunkedArray, filled: pl.Series, size: dict[str, Any], shown: dict[str, Any]
) -> Profile:
    few = filled.head(_TIME_SAMPLE)
    length = mean(few.str.len_chars())
    if mean(few.str.contains(_IMPRESSIONS)) > 0.9 and few.str.contains(" ").any():
        return Profile(name, "text", **size, **shown, length=length, is_impressions=True)
    if (time := _time_format(name, values)) is not None:
        return Profile(name, "time", **size, **shown, time=time)
    odd = filled.filter(filled.cast(pl.Float64, strict=False).is_null())
    shown["odd"] = odd[0] if 0 < len(odd) < _FEW_ODD * len(filled) else None
    separator, elements = _list_of(name, few)
    return Profile(
        name, "text", **size, **shown, length=length, separator=separator, elements=elements,
        compound=_compound(few, separator), has_spaces=bool(few.str.contains(" ", literal=True).any()),
    )  # fmt: skip


def _time_format(name: str, values: pa.ChunkedArray) -> str | None:
    sample = values.slice(0, _TIME_SAMPLE).drop_null()
    if not re.search(r"\d[-/.: ]|^\d{9}", str(sample[0].as_py())):
        return None
    try:
        found = text_format(sample, "sample", name)
    except DataError:
        return None
    if found not in {"int64", "float64"}:
        return found
    if simplified(name) in ALIASES["item"] or pc.any(pc.match_substring_regex(sample, r"^0\d")).as_py():
        return None  # digits of an id, such as an ISBN
    numbers = pl.Series(pl.from_arrow(sample)).cast(pl.Float64, strict=False).drop_nulls().to_numpy()
    return _unit(numbers)  # times, and a few rows with other texts


def _unit(numbers: np.ndarray) -> str | None:
    """Return the unit of numbers that may be times."""
    if not len(numbers) or numbers.min() < 0:
        return None
    is_seconds = _SECONDS[0] <= float(np.median(numbers)) < _SECONDS[1]
    return unit_of(numbers) or ("s" if is_seconds else None)


def _are_hours(numbers: np.ndarray) -> bool:
    """Whether numbers are hours such as 14102100, the hour 0 of 2014-10-21, or 2014102100; they have the order of the time."""
    year, month, day, hour = numbers // 10**6, numbers // 10**4 % 100, numbers // 100 % 100, numbers % 100
    is_year = ((year >= 5) & (year < 40)) | ((year >= 1990) & (year < 2040))
    return bool((is_year & (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31) & (hour < 24)).all())


def _list_of(name: str, texts: pl.Series) -> tuple[str | None, int]:
    """Return the separator of texts that are lists of recurring short values, and the number of distinct values."""
    for mark in _LIST_MARKS:
        has = texts.str.contains(mark, literal=True)
        if mean(has) < 0.2:
            continue
        separator = _with_spaces(mark, texts)
        lists = texts.str.split(separator)
        if mark != "|" and lists.list.len().unique().to_list() == [2]:
            continue  # ids of two parts
        if separator == _PROSE and not _any_order(lists):
            continue  # titles and names, such as "Matrix, The"
        elements = lists.explode()
        if separator == " " and not name.endswith("_seq") and not elements.str.contains(r"\d").all():
            continue  # words
        distinct = elements.n_unique()
        short = mean(elements.str.len_chars()) <= 24
        if short and distinct <= len(elements) / 3 and not elements.str.contains(r"^\s|[\s|,;]$").any():
            return separator, distinct
    return None, 0


def _compound(texts: pl.Series, separator: str | None) -> str | None:
    """Return an element made of other elements with another separator, such as "b, c" of "a|b" and "a|c|b, c"."""
    elements = set(texts if separator is None else texts.str.split(separator).explode())
    found = (
        one
        for one in sorted(elements)
        for mark in "|,;"
        if mark in one and all(part.strip() in elements for part in one.split(mark))
    )
    return next(found, None)


def _any_order(lists: pl.Series) -> bool:
    """Whether most later elements come first in other lists."""
    later = lists.list.slice(1).explode().drop_nulls()
    return mean(later.is_in(lists.list.first().unique().implode())) >= _FIRST_TOO


def _with_spaces(mark: str, texts: pl.Series) -> str:
    """Return a mark between elements with the spaces around it, if these are the same everywhere."""
    if mark == " ":
        return mark
    found = texts.str.extract_all(f" ?{re.escape(mark)} ?").explode().drop_nulls().unique().to_list()
    return str(found[0]) if len(found) == 1 else mark
