"""The tables behind the arguments of `recsys init`: files, members of archives, lakes, databases and queries."""

from __future__ import annotations

import os
import re
import shlex
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recsys_cli.data.copies import kind_of
from recsys_cli.data.databases import is_database, table_queries
from recsys_cli.data.files import TableOptions
from recsys_cli.data.locate import address, locate
from recsys_cli.data.remote import RawFile, is_url
from recsys_cli.data.secrets import holds_secret
from recsys_cli.errors import ConfigError, DataError

_NO_TABLE = re.compile(
    r"(?i)(^|/)(readme|licen[cs]e|citation|changelog|\.|_|__macosx)"
    r"|\.(md|rst|html?|pdf|docx?|png|jpe?g|svg|py|ipynb|sh|pl|npy|npz|pkl|pt|json5|ya?ml|sql|bib|tex|log|md5|sha\d+)$"
)
_QUERY = re.compile(r"(?is)\s*(select|with|from)\s")
_CATALOG_TABLE = re.compile(r"[\w-]+(\.[\w-]+){2,}")
_ARCHIVES = {"zip": (".zip",), "tar": (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")}


def copied_tables(patterns: Sequence[str]) -> list[tuple[str, dict[str, Any]]]:
    """Return the names and options of the tables in lakes and databases; without plain columns the query is None.

    A query applies to the database among the patterns, if there is one.

    Raises:
        ConfigError: No environment variable has the address of a database, or a query has several databases.
    """
    queries = [pattern for pattern in patterns if is_query(pattern)]
    others = [pattern for pattern in patterns if pattern not in queries]
    databases = {pattern: {"database": variable(pattern, "a database")} for pattern in others if is_database(pattern)}
    if queries and len(databases) > 1:
        raise ConfigError("a query of several databases", hint="name one database, and its query")
    found: list[tuple[str, dict[str, Any]]] = []
    for query in queries:
        named = re.search(r"(?is)\bfrom\s+[\"']?([^\s\"';]+)", query)
        database = next(iter(databases.values()), {})
        found.append((Path(named[1]).stem if named else "query", {"query": query.strip().rstrip(";"), **database}))
    for one, database in () if queries else databases.items():
        found += [(name, {"query": query, **database}) for name, query in table_queries(one)]
    for pattern in others:
        if pattern not in databases and (lake := _lake_table(pattern)):
            found.append((pattern.rstrip("/").rpartition("/")[2].rpartition(".")[2], lake))
    return found


def is_copied(pattern: str) -> bool:
    """Whether a pattern names a table of a lake or a database."""
    return is_query(pattern) or is_database(pattern) or _lake_table(pattern) is not None


def is_query(pattern: str) -> bool:
    """Whether a text is a query."""
    return _QUERY.match(pattern) is not None and not os.path.exists(pattern)  # noqa: PTH110 - no error for long texts


def members(pattern: str) -> list[str]:
    """Return a path or URL of a file or of a partitioned folder, or the paths of the tables in a folder, glob or archive.

    Raises:
        ConfigError: There is no file.
    """
    if holds_secret(pattern):
        pattern = f"${variable(pattern, 'a signed address')}"
    kind = _archive(address(pattern))
    if kind is not None and pattern.startswith("$"):
        raise ConfigError(f"{pattern} is an archive", hint="download it, and name its file")
    if pattern.startswith("$"):
        return [pattern]
    if kind is None and is_partitioned(pattern):
        return [pattern]
    if kind is None and (is_url(pattern) or Path(pattern).is_file()):
        return [pattern]
    if kind is None:
        folder = f"{pattern}/" if Path(pattern).is_dir() else ""
        paths = [str(file) for file in located(pattern)]
        return [path for path in paths if not folder or not _NO_TABLE.search(path.removeprefix(folder))]
    files = located(f"{kind}://**::{pattern}")
    return [str(file) for file in files if not _NO_TABLE.search(str(file).partition("::")[0].partition("://")[2])]


def is_partitioned(pattern: str) -> bool:
    """Whether a pattern is a local folder of one table with folders named column=value."""
    return not is_url(pattern) and Path(pattern).is_dir() and any(one.is_dir() for one in Path(pattern).glob("*=*"))


def located(pattern: str) -> tuple[RawFile, ...]:
    """Return the files of a pattern.

    Raises:
        ConfigError: There is no file.
    """
    try:
        return locate("interactions", [pattern])
    except DataError as error:
        missing = "there is no file" in str(error)
        raise ConfigError(f"no file {pattern}" if missing else str(error), hint=error.hint) from error


def _archive(pattern: str) -> str | None:
    """Return the protocol for the members of an archive."""
    if "::" in pattern:
        return None
    if is_url(pattern):
        address = pattern.partition("?")[0].lower()
        return next((kind for kind, suffixes in _ARCHIVES.items() if address.endswith(suffixes)), None)
    if not Path(pattern).is_file():
        return None
    if zipfile.is_zipfile(pattern):
        return "zip"
    return "tar" if pattern.lower().endswith(_ARCHIVES["tar"]) and tarfile.is_tarfile(pattern) else None


def _lake_table(pattern: str) -> dict[str, Any] | None:
    if is_url(pattern):
        return _remote_lake(pattern)
    if kind_of(TableOptions.model_validate(pattern)) is not None:
        return {"files": pattern}
    if _CATALOG_TABLE.fullmatch(pattern) and not Path(pattern).exists() and _has_catalog(pattern.partition(".")[0]):
        return {"files": pattern, "format": "iceberg"}
    return None


def _remote_lake(url: str) -> dict[str, Any] | None:
    """Return the options of a table in a folder of object storage; web servers have no folders."""
    if url.startswith("http") or "::" in url or Path(url).suffix or "*" in url:
        return None
    for kind, mark in (("delta", "_delta_log/*.json"), ("iceberg", "metadata/*.metadata.json")):
        try:
            if locate("interactions", [f"{url.rstrip('/')}/{mark}"]):
                return {"files": url, "format": kind}
        except DataError:
            continue
    return None


def _has_catalog(name: str) -> bool:
    """Whether pyiceberg knows a catalog."""
    try:
        from pyiceberg.utils.config import Config
    except ImportError:
        return False
    return Config().get_catalog_config(name) is not None


def variable(address: str, what: str) -> str:
    """Return the environment variable with the address of a database or a signed URL; configs hold no such addresses.

    Raises:
        ConfigError: There is none.
    """
    found = (name for name, value in os.environ.items() if value == address and name.isidentifier() and name != "_")
    if (name := next(found, None)) is not None:
        return name
    is_server = "://" in address
    shown = f"{address.partition('://')[0]}://…" if is_server else address
    raise ConfigError(
        f"{shown} is {what}, and configs name the environment variable of its address",
        hint=f'export SHOP={shown if is_server else shlex.quote(address)}, then recsys init "$SHOP"; with a query: recsys init '
        '"$SHOP" "SELECT …"',
    )
