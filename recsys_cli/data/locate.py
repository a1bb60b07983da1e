"""Files for a path of a config: a file, a glob, a folder or a URL of these."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from pathlib import Path

from recsys_cli.data import remote
from recsys_cli.data.remote import RawFile
from recsys_cli.data.secrets import without_secret
from recsys_cli.errors import ConfigError, DataError


def locate(table: str, patterns: Sequence[str]) -> tuple[RawFile, ...]:
    """Return the files of a table, sorted by name within each pattern.

    Args:
        table: Name of the table, for errors.
        patterns: Paths, globs, folders or URLs; paths are relative to the working directory.

    Raises:
        ConfigError: A file is matched twice, has a name that is not UTF-8, or the protocol of a URL is unknown.
        DataError: A pattern matches no file.
        MissingExtraError: A URL needs a package that is not installed.
    """
    files = tuple(file for pattern in patterns for file in _expand(table, address(pattern)))
    if odd := next((file for file in files if any("\ud800" <= one <= "\udfff" for one in str(file))), None):
        raise ConfigError(
            f"table {table!r}: the file name {str(odd).encode(errors='surrogateescape')!r} is not UTF-8",
            hint="rename the file",
        )
    if len(set(files)) < len(files):
        twice = sorted({str(file) for file in files if files.count(file) > 1})
        raise ConfigError(
            f"table {table!r}: {', '.join(twice)} is matched twice, so its rows would be duplicated",
            hint="match each file by one path or glob",
        )
    return files


def address(pattern: str) -> str:
    """Return a pattern, or the value of the environment variable that it names as $PLAYS.

    Raises:
        ConfigError: There is no such variable.
    """
    name = pattern.removeprefix("$")
    if name == pattern or not name.isidentifier() or Path(pattern).exists():
        return pattern
    if not (value := os.environ.get(name)):
        raise ConfigError(f"the environment has no {name}, the address of {pattern}", hint=f"export {name}=ADDRESS")
    return value


def _expand(table: str, pattern: str) -> Sequence[RawFile]:
    if remote.is_url(pattern):
        files: Sequence[RawFile] = remote.find(pattern)
        if not files:
            raise DataError(f"table {table!r}: there is no file at {without_secret(pattern)}")
        return files
    pattern = remote.without_protocol(pattern)
    path = Path(pattern)
    if path.is_file():  # even with a "[" in its name
        return [path]
    if path.is_dir():
        return _in_folder(table, path)
    matches = glob.glob(pattern, recursive=True)  # noqa: PTH207 - Path.glob takes no absolute patterns
    paths = sorted(Path(match) for match in matches if Path(match).is_file())
    if not paths:
        what = "no file matches" if glob.has_magic(pattern) else "there is no file"
        raise DataError(f"table {table!r}: {what} {pattern}", hint=f"paths are relative to {Path.cwd()}")
    return paths


def _in_folder(table: str, folder: Path) -> list[Path]:
    """Return all files under a folder, except marker files of writers (_SUCCESS, .part.crc)."""
    parts_of = {path: path.relative_to(folder).parts for path in folder.rglob("*") if path.is_file()}
    paths = sorted(path for path, parts in parts_of.items() if not any(part.startswith((".", "_")) for part in parts))
    if not paths:
        raise DataError(f"table {table!r}: there is no file in folder {folder}")
    return paths
