"""Atomic replacement of folders outside a workspace's own."""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from recsys_cli.workspace.locks import replace_folder, restore
from recsys_cli.workspace.writing import flush, naming

_HERE, _EXCHANGE = -100, 2
"""`AT_FDCWD` and `RENAME_EXCHANGE` of Linux."""


@contextmanager
def replacing_folder(target: Path) -> Iterator[Path]:
    """Yield an empty folder to fill in the same file system; at the end it is flushed to disk and replaces the target.

    A reader finds the old or the new version at every moment, also after a kill. Systems other than Linux need two
    renames; after a kill between them, the next call completes the replacement. The temporary name is fixed, so that kills
    leave at most one folder; it requires a single writer at a time.
    """
    scratch = target.absolute().with_name(f".{target.name}.partial")
    made = scratch / target.name
    with naming(target):
        _remove(scratch)
        made.mkdir(parents=True)
        try:
            yield made
            _flush_all(made)
            if not (target.exists() and exchange(made, target)):
                replace_folder(scratch, made, target)
            flush(target.absolute().parent)
        finally:
            _remove(scratch)


def exchange(one: Path, other: Path) -> bool:
    """Exchange two folders of one file system in one step; False if the system cannot."""
    if sys.platform != "linux":
        return False
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    return rename is not None and rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0


def _remove(scratch: Path) -> None:
    if scratch.is_dir():
        restore(scratch)
        shutil.rmtree(scratch)


def _flush_all(folder: Path) -> None:
    for path in [*folder.rglob("*"), folder, folder.parent]:
        flush(path)
