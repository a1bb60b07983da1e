"""Merging what parts of train have told, and drawing the conclusion: the same for every engine, one file per op that learns.

Each file has `merge(parts)`, which makes one table of several and whose result may be merged again, and `finish(op, merged)`,
which makes the state of it. Both depend on nothing but their arguments and their order: no unordered group-by, so that
threads and clusters give the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Protocol, cast

import pyarrow as pa

from recsys_cli.features.ops.op import Op, file_name


class Aggregator(Protocol):
    """What a file here provides."""

    def merge(self, parts: Sequence[pa.Table]) -> pa.Table:
        """Make one table of those that parts of train gave, in the order of the parts."""

    def finish(self, op: Op, merged: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
        """Return what the op has learnt, given the merged tables by name."""


def of(op: Op) -> Aggregator:
    """Return the file of this package that is named like the op."""
    return cast("Aggregator", import_module(f"{__package__}.{file_name(type(op))}"))
