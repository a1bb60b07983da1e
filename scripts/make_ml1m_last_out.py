"""The file `ml-1m.txt` of the protocol ml1m-last-out, made from the ratings of MovieLens 1M.

usage: make_ml1m_last_out.py RATINGS [--out ml-1m.txt]

RATINGS is one of the files that movielens_1m.py reads. The published file has items with five ratings and more, each user's rows
by time (equal times in the order of ratings.dat), numbers in the order of appearance, and users in the order of a dictionary of
Python 2 with their names as keys. A result without the published digest is deleted.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

from movielens_1m import read

from recsys_cli.data.digest import Digest

DIGEST = Digest("9ab8e3edb8742f8d8cc4911e3dee25e82a6fcc24", "git")
MIN_RATINGS = 5
_WORD = (1 << 64) - 1


def hash_of(key: str) -> int:
    """Return the hash of a string in Python 2 on 64-bit machines, without randomization."""
    value = ord(key[0]) << 7
    for character in key:
        value = (1_000_003 * value & _WORD) ^ ord(character)
    return value ^ len(key)


def table_order(keys: Iterable[str]) -> list[str]:
    """Return distinct keys in the order of a dictionary of Python 2 (open addressing, four times the keys at two thirds full)."""
    table: list[str | None] = [None] * 8
    for used, key in enumerate(keys, 1):
        _insert(table, key)
        if 3 * used >= 2 * len(table):
            old, table = table, [None] * (1 << (4 * used).bit_length())
            for each in filter(None, old):
                _insert(table, each)
    return [key for key in table if key is not None]


def _insert(table: list[str | None], key: str) -> None:
    place = perturbation = hash_of(key)
    while table[place % len(table)] is not None:
        place = 5 * place + perturbation + 1
        perturbation >>= 5
    table[place % len(table)] = key


def main() -> None:
    """Write the file and verify its digest."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ratings", type=Path)
    parser.add_argument("--out", type=Path, default=Path("ml-1m.txt"))
    given = parser.parse_args()
    ratings = read(given.ratings)
    counts = Counter(item for _, item, *_ in ratings)
    histories: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
    for user, item, _, time in ratings:
        if counts[item] >= MIN_RATINGS:
            histories[user].append((time, item))
    numbers: dict[str, int] = {}
    with given.out.open("w", encoding="ascii", newline="\n") as file:
        for user, name in enumerate(table_order(dict.fromkeys(user for user, *_ in ratings)), 1):
            for _, item in sorted(histories[name], key=lambda row: row[0]):
                file.write(f"{user} {numbers.setdefault(item, len(numbers) + 1)}\n")
    if problem := DIGEST.mismatch(given.out):
        given.out.unlink()
        raise SystemExit(f"{given.ratings} is not MovieLens 1M in the publisher's order: {problem}")
    print(f"{given.out}: the published file, digest {DIGEST.value}")


if __name__ == "__main__":
    main()
