"""The dialect of a file, from its first bytes: separator, header, encoding, column names."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recsys_cli.data.files import JSON, PARQUET, SUFFIXES
from recsys_cli.data.raw_files import RawFile, head, unpacked_name
from recsys_cli.data.source import RUNS
from recsys_cli.detect.names import TYPED, is_known
from recsys_cli.errors import ConfigError, DataError, listed

_HEAD = 256 << 10
_LINES = 200
_SEPARATORS = ("::", "\t", ";", "|", ",", " ", RUNS)
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")
_COMMA_NUMBER = re.compile(r"[+-]?\d+(,\d+)?")
_HISTORY_SEPARATORS = (" ", "\t", ",")
_RECURRING, _SHOWN = 0.6, 60
"""Largest share of distinct values in lines of items."""


class HeadingsError(ConfigError):
    """Interactions below lines with their item."""


def dialect(file: RawFile) -> dict[str, Any]:
    """Return the options of a table's files as in a config; columns without a header are called column1, column2, ….

    Raises:
        ConfigError: The file is empty, or no table.
        DataError: The file is unreadable.
    """
    suffix = Path(unpacked_name(file.name)).suffix.lower()
    if suffix in PARQUET | JSON:
        return {}
    start = head(file, _HEAD)
    text, encoding = _decoded(start, file)
    lines = [line for line in re.split(r"\r\n|\r|\n", text) if line.strip()]  # other breaks are characters of titles
    lines = lines[: -1 if len(start) == _HEAD else None][:_LINES]
    if not lines and text.strip():
        raise ConfigError(
            f"{file}: the first line is longer than {_HEAD:,} bytes",
            hint="shorten the names of its columns, or end lines with a line break",
        )
    if not lines:
        raise ConfigError(f"{file} is empty", hint="name a file with one row per interaction")
    if lines[0].lstrip().startswith(("{", "[")):
        stem = Path(unpacked_name(file.name)).stem
        raise DataError(f"{file} looks like JSON", hint=f"name it {stem}.jsonl, with one object per line")
    if re.fullmatch(r"\d+:\s*", lines[0]):
        raise HeadingsError(
            f"{file}: lines such as {lines[0].strip()} name the item of the lines below",
            hint="""write it into each of them: awk '/:$/ {item = substr($0, 1, length($0) - 1); next} {print item "," $0}'""",
        )
    usual = ("separator", SUFFIXES.get(suffix, ("", ""))[1])
    return dict(one for one in _text_options(lines, suffix, file).items() if one != usual) | encoding


def _text_options(lines: list[str], suffix: str, file: RawFile) -> dict[str, Any]:
    own = (SUFFIXES[suffix][1],) if suffix in SUFFIXES else ()
    even = {}
    for separator in dict.fromkeys((*own, *_SEPARATORS)):
        rows = _rows(lines, separator)
        width, share = _width(rows)
        if width > 1 and share > 0.9:
            even[separator] = [row for row in rows if len(row) == width]
    if even:
        separator = _likeliest(even, lines[0])
        rows = even[separator]
        twice = sorted(name for name, count in Counter(rows[0]).items() if count > 1)
        if twice and any(map(is_known, rows[0])) and not any(map(is_number, rows[0])):
            raise ConfigError(
                f"{file}: the header names {listed(twice)} twice", hint="give each column a name of its own in the file"
            )
        names = () if _has_header(rows) else tuple(f"column{position + 1}" for position in range(len(rows[0])))
        decimal = {"decimal": ","} if _has_decimal_commas(rows[0 if names else 1 :], separator) else {}
        return {"separator": separator, **({"names": names} if names else {}), **_quote(lines, separator), **decimal}
    separators = [one for one in _HISTORY_SEPARATORS if one != " " or not _most(lines, ",")]
    uneven = {separator: _rows(lines, separator) for separator in separators}
    uneven = {separator: rows for separator, rows in uneven.items() if len(set(map(len, rows))) > 1}
    for separator, rows in uneven.items():
        are_own = len({row[0] for row in rows}) == len(rows) and not (separator == "," and _most(lines, " "))
        if sum(len(row) > 1 for row in rows) > 0.9 * len(rows) and are_own:  # spaces between commas are those of titles
            return _history(separator, names=("user", "item"))
    shares = {separator: _distinct(rows) for separator, rows in uneven.items()}
    separator = min(shares, key=lambda one: shares[one], default="")
    if separator and shares[separator] <= _RECURRING:
        return {**_history(separator, names=("item",)), "line": "basket"}
    if separator:
        widths = sorted(map(len, uneven[separator]))
        raise ConfigError(
            f"{file}: the lines have {widths[0]} to {widths[-1]} columns with the separator {separator!r}",
            hint="write one row per interaction with the same columns in each line; or one line per user or session, an id and "
            "then its items, or only its items",
        )
    raise ConfigError(
        f"{file}: the header needs at least two columns, and has one: {lines[0].strip()[:_SHOWN]!r}",
        hint="separators are a comma, tab, semicolon, |, :: or space; "
        "or write the config by hand, with separator next to the table's files",
    )


def _most(lines: list[str], text: str) -> bool:
    return 2 * sum(text in line.strip() for line in lines) > len(lines)


def _distinct(rows: list[list[str]]) -> float:
    """Return the share of distinct values in lines of items; more than 1 for lines of one value."""
    values = [value for row in rows for value in row]
    return len(set(values)) / len(values) if sum(len(row) > 1 for row in rows) > 0.5 * len(rows) else 2.0


def _has_decimal_commas(rows: list[list[str]], separator: str) -> bool:
    """Whether a column has numbers such as 3,5, and none 3.5; 1,200 in quotes between commas may be thousands."""
    sure = r",(?!\d{3}$)" if separator == "," else ","
    columns = [[value.strip() for value in values if value.strip()] for values in zip(*rows, strict=True)]
    return any(
        all(map(_COMMA_NUMBER.fullmatch, values)) and any(re.search(sure, value) for value in values)
        for values in columns
    ) and not any(re.fullmatch(r"-?\d+\.\d+", value) for values in columns for value in values)


def _likeliest(even: Mapping[str, list[list[str]]], first: str) -> str:
    """Return the separator: the first one that splits the first line as well; no comma of decimals between semicolons."""
    fitting = [name for name, rows in even.items() if _rows([first], name) == rows[:1]] or list(even)
    if fitting[0] == "," and ";" in fitting and len(even[";"][0]) > len(even[","][0]):
        return ";"
    return fitting[0]


def _history(separator: str, *, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the options of lines with a user and all of its items, or with items only."""
    return {
        "separator": separator, "quote": None, "names": names, "lists": {"item": separator}, "explode": "item",
        "order": "position",
    }  # fmt: skip


def _decoded(start: bytes, file: RawFile) -> tuple[str, dict[str, Any]]:
    if b"\0" in start[:4096]:
        raise ConfigError(f"{file}: not a text, Parquet or JSON lines table", hint="export it as CSV or Parquet")
    text = start.removeprefix(b"\xef\xbb\xbf")
    try:
        return text.decode(), {}
    except UnicodeDecodeError as error:
        if error.start > len(text) - 4 and len(start) == _HEAD:  # cut within a character
            return text[: error.start].decode(), {}
        return text.decode("latin-1"), {"encoding": "latin-1"}


def _rows(lines: list[str], separator: str) -> list[list[str]]:
    if separator == RUNS:
        return [line.split() for line in lines]
    if len(separator) > 1 or separator == " ":
        return [line.strip().split(separator) for line in lines]
    for is_strict in (True, False):
        rows: list[list[str]] = []
        try:
            rows.extend(row for row in csv.reader(lines, delimiter=separator, strict=is_strict) if row)
        except csv.Error as error:
            if not rows or "end of data" not in str(error):
                continue
        return rows  # without what follows an open quote, which the reader names by its line
    return [line.split(separator) for line in lines]


def _quote(lines: list[str], separator: str) -> dict[str, Any]:
    """Return `quote: null` for text whose quotes do not delimit fields."""
    if separator == RUNS:
        return {"quote": None}
    inner = rf'(?<!^)(?<!{re.escape(separator)}|")"(?!{re.escape(separator)}|"|$)' if len(separator) == 1 else r'[^:]"'
    plain = sum(re.search(inner, line) is not None for line in lines)
    return {"quote": None} if plain and separator != "," else {}


def _width(rows: list[list[str]]) -> tuple[int, float]:
    width, count = Counter(map(len, rows)).most_common(1)[0]
    return width, count / len(rows)


def is_number(text: str) -> bool:
    """Whether a text is a number."""
    return _NUMBER.fullmatch(text) is not None


def _has_header(rows: list[list[str]]) -> bool:
    first, others = rows[0], rows[1:]
    if all(TYPED.search(name) for name in first):
        return True
    named = [name for name in first if name.strip()]  # a table with its index has one blank name
    if any(map(is_number, named)) or len(named) < len(first) - 1 or len(set(first)) < len(first):
        return False
    if not others or any(is_known(name) for name in first):
        return True
    below = list(zip(*others, strict=True))
    if any(sum(map(is_number, values)) > 0.8 * len(values) for values in below):
        return True
    recurs = any(name in values for name, values in zip(first, below, strict=True))
    return not recurs and not any(character.isdigit() for name in first for character in name)
