"""Embedding widths per column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import Column
from recsys_cli.registry import suggest


def default_dim(cardinality: int) -> int:
    """Return the default width for cardinality n: min(512, max(16, round(1.6 n^0.56))), the rule of fast.ai and NVTabular."""
    return min(512, max(16, round(1.6 * cardinality**0.56)))


def dims_of(columns: Sequence[Column], option: int | Mapping[str, int] | None) -> dict[str, int]:
    """Return the embedding width of each categorical column: one for all, by name, or by `default_dim`.

    Raises:
        ConfigError: A name is no categorical column.
    """
    names = [column.name for column in columns]
    given = dict.fromkeys(names, option) if isinstance(option, int) else dict(option or {})
    for name in given:
        if name not in names:
            raise ConfigError(
                f"embedding_dim: no categorical column {name!r}{suggest(name, names)}",
                hint=f"the columns with embeddings are {', '.join(names)}",
            )
    return {column.name: given.get(column.name) or default_dim(column.cardinality or 0) for column in columns}
