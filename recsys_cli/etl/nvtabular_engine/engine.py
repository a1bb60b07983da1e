"""The engine on NVTabular 23.08."""

from __future__ import annotations

from importlib.util import find_spec

from recsys_cli.errors import MissingExtraError


class NVTabularEngine:
    """NVTabular, as users of Merlin know it."""

    @classmethod
    def missing(cls) -> MissingExtraError | None:
        """Return an error with the install command where NVTabular is not installed; decided without importing it."""
        if find_spec("nvtabular") is None:
            return MissingExtraError.for_extra("nvtabular", what="etl.engine=nvtabular")
        return None

    @classmethod
    def rank(cls) -> int:
        """Return its place beside the others: first on a GPU with cuDF, last without."""
        return 20 if find_spec("cudf") is not None else 0
