"""Datasets in the exact files of published protocols, with the splits and the candidates of their authors."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from recsys_cli.data.published.rows import blocks, parsed, write_rows
from recsys_cli.data.raw_files import opened, unpacked_name
from recsys_cli.errors import DataError
from recsys_cli.events import Emit

_PAIRS = pa.schema([("user", pa.int32()), ("item", pa.int32())])
_CANDIDATES = pa.schema([*_PAIRS, ("timestamp", pa.int64()), ("label", pa.int8())])
_FOLD_IN = pa.schema([*_PAIRS, ("position", pa.int32())])
_RATINGS = pa.schema([
    pa.field("userId", pa.int64(), nullable=False), pa.field("movieId", pa.int64(), nullable=False),
    pa.field("rating", pa.float64(), nullable=False),
])  # fmt: skip
_SEED, _HELD_OUT_USERS = 98_765, 10_000
_HINT = "pass the publisher's file of this dataset"


def convert_lists(folder: Path, files: Sequence[Path], emit: Emit) -> None:
    """Write a row per item of lists by user: lines `user item item …`, or a JSON list of each user's items.

    A validation list is left out: the published runs neither train on it nor filter its items.
    """
    for file in files:
        name = Path(unpacked_name(file.name))
        lists = _json_lists(file, emit) if name.suffix == ".json" else parsed(file, _list, emit)
        rows = ((user, item) for user, items in lists for item in items)
        split = name.stem.removesuffix("_data") if name.stem in {"train_data", "test_data"} else name.stem
        write_rows(folder / f"{split}.parquet", _PAIRS, rows)


def _list(line: str) -> tuple[int, list[int]] | None:
    fields = line.split()
    if not all(map(str.isdecimal, fields)):
        return None
    return int(fields[0]), list(map(int, fields[1:]))


def _json_lists(file: Path, emit: Emit) -> Iterator[tuple[int, list[int]]]:
    try:
        lists: list[list[int]] = json.loads(b"".join(blocks(file, emit)))
        if not all(isinstance(items, list) for items in lists):
            raise ValueError("not a list of lists")
    except (ValueError, TypeError) as error:
        raise DataError(f"{file.name}: {error}", hint=_HINT) from error
    yield from enumerate(lists)


def convert_ncf(folder: Path, files: Sequence[Path], emit: Emit) -> None:
    """Write train rows with label 1, and test rows: the held-out item (label 1) and its given negatives (label 0)."""
    train, test, negatives = files
    write_rows(folder / "train.parquet", _CANDIDATES, ((*row, 1) for row in parsed(train, _rated, emit)))
    times = {(user, item): time for user, item, time in parsed(test, _rated, emit)}

    def candidates() -> Iterator[tuple[int, int, int, int]]:
        for user, item, others in parsed(negatives, _negatives, emit):
            if (user, item) not in times:
                raise DataError(
                    f"{negatives.name}: ({user},{item}) is not in {test.name}",
                    hint="pass the three files of one dataset",
                )
            time = times[user, item]
            yield user, item, time, 1
            yield from ((user, other, time, 0) for other in dict.fromkeys(others) if other != item)

    write_rows(folder / "test.parquet", _CANDIDATES, candidates())


def _rated(line: str) -> tuple[int, int, int] | None:
    fields = line.split("\t")
    if len(fields) != 4 or not all(map(str.isdecimal, fields)):
        return None
    return int(fields[0]), int(fields[1]), int(fields[3])


def _negatives(line: str) -> tuple[int, int, list[int]] | None:
    pair, *others = line.split()
    match = re.fullmatch(r"\((\d+),(\d+)\)", pair)
    if match is None or not all(map(str.isdecimal, others)):
        return None
    return int(match[1]), int(match[2]), list(map(int, others))


def convert_liang(folder: Path, files: Sequence[Path], emit: Emit) -> None:  # noqa: ARG001 - read as a whole
    """Write the strong generalization split of Liang et al. (WWW 2018), by their seed and order of draws.

    Ratings of at least 4, users with 5 or more of them, 10,000 users each for valid and test, items of train only. Of valid and
    test users, `position` is 0 for the 80 % of the fold-in history and 1 for the targets.
    """
    kept = pyarrow.csv.ConvertOptions(column_types=_RATINGS, include_columns=_RATINGS.names)
    try:
        with opened(files[0]) as (stream, _):
            ratings = pyarrow.csv.read_csv(stream, convert_options=kept)
        users, items, stars = (column.to_numpy() for column in ratings.cast(_RATINGS).columns)
    except (pa.ArrowInvalid, pa.ArrowKeyError, ValueError) as error:
        raise DataError(f"{files[0].name}: {error}", hint=_HINT) from error
    write_splits(folder, users, items, stars > 3.5, held_out=_HELD_OUT_USERS)


def write_splits(
    folder: Path,
    users: npt.NDArray[np.int64],
    items: npt.NDArray[np.int64],
    liked: npt.NDArray[np.bool_],
    *,
    held_out: int,
) -> None:
    """Write train, valid and test of ratings (N,), for files in order of users; see `convert_liang`."""
    users, items = users[liked], items[liked]
    distinct, index, counts = np.unique(users, return_inverse=True, return_counts=True)
    enough = counts[index] >= 5
    users, items = users[enough], items[enough]
    distinct = distinct[counts >= 5]
    if len(distinct) <= 2 * held_out:
        raise DataError(f"ratings.csv: {len(distinct):,} users are too few for {2 * held_out:,} held-out users")
    permuted = distinct[np.random.RandomState(_SEED).permutation(len(distinct))]
    parts = {
        "train": permuted[: -2 * held_out],
        "valid": permuted[-2 * held_out : -held_out],
        "test": permuted[-held_out:],
    }
    in_train = np.isin(users, parts["train"])
    known = np.unique(items[in_train])
    _write(folder / "train.parquet", users[in_train], items[in_train], np.zeros(np.count_nonzero(in_train)))
    for split in ("valid", "test"):
        rows = np.isin(users, parts[split]) & np.isin(items, known)
        order = np.argsort(users[rows], kind="stable")
        own = users[rows][order]
        targets, kept = draw_targets(own)
        _write(folder / f"{split}.parquet", own[kept], items[rows][order][kept], targets[kept])


def draw_targets(users: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return a mask of the targets, a fifth of each user's rows, and one of the kept rows, both (N,); users ascend.

    Users with fewer than 5 rows have no targets and are left out, as no metric is defined for them.
    """
    random = np.random.RandomState(_SEED)
    starts, counts = np.unique(users, return_index=True, return_counts=True)[1:]
    targets, kept = np.zeros(len(users), np.int64), np.ones(len(users), bool)
    for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
        if count >= 5:
            targets[start + random.choice(count, size=int(0.2 * count), replace=False)] = 1
        else:
            kept[start : start + count] = False
    return targets, kept


def _write(path: Path, *columns: npt.NDArray[Any]) -> None:
    pq.write_table(
        pa.table([pa.array(column).cast(pa.int32(), safe=False) for column in columns], schema=_FOLD_IN), path
    )
