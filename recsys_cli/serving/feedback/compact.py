"""Compaction: logs rewritten without deleted and overwritten events, and the table of interactions for `recsys etl`."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from recsys_cli.errors import ConfigError, LockedError, MissingArtifactError
from recsys_cli.serving.feedback.files import (
    compacted_file,
    current_files,
    exclusive,
    generation,
    outdated_files,
    replay,
)
from recsys_cli.serving.feedback.state import FeedbackState
from recsys_cli.workspace.writing import replacing

TABLE = "interactions.csv"
COLUMNS = ("user", "item", "label", "time")


@dataclass(frozen=True)
class Compacted:
    """Result of a compaction.

    Attributes:
        table: The written table.
        rows: Its number of rows.
        removed: Number of events removed from the log: deleted and overwritten ones; None while a server writes the log.
        damaged: Number of damaged lines, which were skipped.
    """

    table: Path
    rows: int
    removed: int | None
    damaged: int


def compact(folder: Path, *, columns: Sequence[str] = COLUMNS) -> Compacted:
    """Write the table of interactions, and rewrite the logs unless a server writes them.

    Args:
        folder: The feedback folder.
        columns: Names of the table's columns: user, item, label, time.

    Raises:
        MissingArtifactError: The folder does not exist.
    """
    if not folder.is_dir():
        raise MissingArtifactError(f"{folder} does not exist", hint="name the folder of recsys serve --feedback")
    if len(set(columns)) != len(COLUMNS):
        raise ConfigError(f"{','.join(columns)} are not four columns", hint="--columns userId,movieId,rating,timestamp")
    with suppress(LockedError), exclusive(folder):
        state, damaged = rewrite(folder)
        rows = _write_table(folder / TABLE, state[0], columns)
        return Compacted(folder / TABLE, rows, state[1], damaged)
    running, damaged = _replayed(folder)
    return Compacted(folder / TABLE, _write_table(folder / TABLE, running, columns), None, damaged)


def rewrite(folder: Path) -> tuple[tuple[FeedbackState, int], int]:
    """Start a new generation with the live events only; the caller holds the lock of the folder.

    Args:
        folder: The feedback folder.

    Returns:
        The state with the number of removed events, and the number of damaged lines.
    """
    for path in outdated_files(folder):
        path.unlink()  # of an interrupted compaction
    state, damaged = _replayed(folder)
    removed = state.num_events - sum(1 for _ in state.live())
    if not removed:
        return (state, 0), damaged
    if damaged:
        for path in current_files(folder):
            path.with_suffix(".damaged").write_bytes(path.read_bytes())
    with replacing(compacted_file(folder, generation(folder) + 1)) as partial, partial.open("wb") as file:
        file.writelines(event.line() for event in state.live())
    for path in outdated_files(folder):
        path.unlink()
    return (state, removed), damaged


def _replayed(folder: Path) -> tuple[FeedbackState, int]:
    state = FeedbackState()
    damaged = sum(replay(path, state)[1] for path in current_files(folder))
    return state, damaged


def _write_table(path: Path, state: FeedbackState, columns: Sequence[str]) -> int:
    """Write the live feedback as CSV, in order of time."""
    rows = sorted((event for event in state.live() if event.kind == "put"), key=lambda event: (event.time, event.at))
    with replacing(path) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows((event.user, event.item, event.label, int(event.time or 0)) for event in rows)
    return len(rows)
