"""Compaction: logs rewritten without deleted and overwritten events, and the table of interactions for `recsys etl`."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from recsys_cli.errors import LockedError, MissingArtifactError
from recsys_cli.serving.feedback.event import COMMIT
from recsys_cli.serving.feedback.files import (
    compacted_file,
    current_files,
    exclusive,
    generation,
    outdated_files,
    replay,
)
from recsys_cli.serving.feedback.state import FeedbackState
from recsys_cli.serving.feedback.table import TableForm, write_table
from recsys_cli.workspace.files import replacing


@dataclass(frozen=True)
class Compacted:
    """Result of a compaction.

    Attributes:
        table: The written table.
        rows: Its number of rows.
        removed: Number of events removed from the log: deleted and overwritten ones; None while a server writes the log.
        damaged: Number of damaged lines, which were skipped.
        disliked: Number of events left out of a table without labels: those with a label of 0 or less.
    """

    table: Path
    rows: int
    removed: int | None
    damaged: int
    disliked: int


def compact(folder: Path, form: TableForm | None = None) -> Compacted:
    """Write the table of interactions, and rewrite the logs unless a server writes them.

    Args:
        folder: The feedback folder.
        form: Format, columns and units of the table.

    Raises:
        MissingArtifactError: The folder does not exist.
        ConfigError: Likes have no label; the logs stay as they are.
    """
    if not folder.is_dir():
        raise MissingArtifactError(f"{folder} does not exist", hint="name the folder of recsys serve --feedback")
    form = form or TableForm()
    with suppress(LockedError), exclusive(folder):
        return replace(_tabled(folder, form, is_live=False), removed=rewrite(folder))
    return _tabled(folder, form, is_live=True)


def _tabled(folder: Path, form: TableForm, *, is_live: bool) -> Compacted:
    """Write the table."""
    state, damaged = _replayed(folder, is_live=is_live)
    rows, disliked = write_table(folder / form.file, state, form)
    return Compacted(folder / form.file, rows, None, damaged, disliked)


def rewrite(folder: Path) -> int:
    """Start a new generation with the live events only; the caller holds the lock of the folder.

    Args:
        folder: The feedback folder.

    Returns:
        The number of removed events.
    """
    for path in outdated_files(folder):
        path.unlink()  # of an interrupted compaction
    state, damaged = _replayed(folder)
    removed = state.num_events - sum(1 for _ in state.live())
    if not removed:
        return 0
    if damaged:
        for path in current_files(folder):
            path.with_suffix(".damaged").write_bytes(path.read_bytes())
    with replacing(compacted_file(folder, generation(folder) + 1)) as partial, partial.open("wb") as file:
        file.writelines(event.line() for event in state.live())
        file.write(COMMIT)
    for path in outdated_files(folder):
        path.unlink()
    return removed


def _replayed(folder: Path, *, is_live: bool = False) -> tuple[FeedbackState, int]:
    state = FeedbackState()
    damaged = sum(replay(path, state, is_live=is_live)[1] for path in current_files(folder))
    return state, damaged
