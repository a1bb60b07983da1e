"""The datasets that papers and vendors use: a YAML file each with its files, tables and license, and one source for all."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml

from recsys_cli import registry
from recsys_cli.data.fetch import Digest
from recsys_cli.data.options import parse_options
from recsys_cli.data.published.source import Description, Download, Published
from recsys_cli.data.source import DatasetInfo, DatasetOptions, RawColumn, RawTable

_DIGESTS: tuple[Literal["md5", "sha256", "git"], ...] = ("md5", "sha256", "git")


@cache
def described(name: str) -> Description:
    """Read the description of a dataset."""
    text = (Path(__file__).parent / f"{name}.yaml").read_text(encoding="utf-8")
    parts: dict[str, Any] = yaml.safe_load(text)
    parts["downloads"] = tuple(map(_download, parts["downloads"]))
    parts["tables"] = tuple(_table(table, how) for table, how in parts["tables"].items())
    for code in {"options", "convert"} & parts.keys():
        parts[code] = registry.load(parts[code])
    return Description(name, **parts)


def _download(parts: dict[str, Any]) -> Download:
    size, members = parts.pop("size", None), tuple(parts.pop("members", ()))
    found = [Digest(parts.pop(kind), kind, size) for kind in _DIGESTS if kind in parts]
    return Download(**parts, members=members, digest=found[0] if found else None)


def _table(name: str, parts: dict[str, Any]) -> RawTable:
    file = Path(parts.pop("file"))
    columns = tuple(_column(column, how) for column, how in parts.pop("columns", {}).items())
    flags = {column: tuple(names) for column, names in parts.pop("flags", {}).items()}
    return RawTable(
        name, (file,), columns, format="parquet" if file.suffix == ".parquet" else "csv", flags=flags, **parts
    )


def _column(name: str, how: Any) -> RawColumn:
    """Return a column by its type, such as `int32`, `string or null` or `time ms`; None for a type by the file."""
    if isinstance(how, dict):
        return RawColumn(name, how["type"], how["separator"], how["empty"])
    kind, _, rest = (how or "").partition(" ")
    dtype: Any = kind or None
    if kind == "time":
        return RawColumn(name, "int64" if rest in {"s", "ms"} else None, time=rest)
    return RawColumn(name, dtype, nullable=rest == "or null")


def info(name: str) -> DatasetInfo:
    """Return the catalog entry of a published dataset."""
    return described(name)


def options(name: str) -> DatasetOptions:
    """Return the options: the selectable parts, if any."""
    return DatasetOptions(described(name).options)


def source(name: str, options: Mapping[str, object]) -> Published:
    """Open a published dataset.

    Raises:
        ConfigError: An option is invalid.
    """
    return Published(described(name), parse_options(described(name).options, options, dataset=name))
