"""Common parts of generated datasets."""

from __future__ import annotations

from typing import Generic, TypeVar

from pydantic import BaseModel

from recsys_cli.data.source import DatasetInfo, FetchRequest
from recsys_cli.errors import ConfigError

FORMAT = 1  # version of the generators' output for equal options
Options = TypeVar("Options", bound=BaseModel)


class Generated(Generic[Options]):
    """Name and options of a generated dataset.

    Args:
        name: Name in the catalog.
        options: Size and seed.
    """

    def __init__(self, name: str, options: Options) -> None:
        self._name = name
        self._options = options

    def identity(self) -> dict[str, object]:
        """Return the options and the generator's version."""
        return {"generator": FORMAT, **self._options.model_dump()}

    def _refuse_files(self, request: FetchRequest) -> None:
        """Refuse a mirror and a local file.

        Raises:
            ConfigError: One was given.
        """
        if request.from_file or request.mirror:
            raise ConfigError(f"{self._name} is generated: remove --from-file and --mirror")


def generated_info(name: str, rows: int, row_bytes: int) -> DatasetInfo:
    """Return the catalog entry of a generated dataset."""
    size = rows * row_bytes
    return DatasetInfo(name=name, rows=rows, size=size, licence="generated, free to use", access="generated")
