"""Tracker protocol. A tracker of another package derives from `Tracker` (docs/security.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from recsys_cli.workspace import TrainedRun


@dataclass(frozen=True)
class Series:
    """Series of metrics of one run, named by its folder.

    Attributes:
        config: Config as plain values.
        done: Finished steps: 0, or the step of a resumed run.
    """

    run: TrainedRun
    config: Mapping[str, Any]
    done: int = 0


class Tracker(Protocol):
    """Logs metrics by step to another program. Created as `Class(series)`; may raise any exception.

    Attributes:
        rewinds: Whether it purges steps after `series.done`. Without it, a resumed run does not log these steps again;
            their values are the same.
    """

    rewinds: ClassVar[bool]

    def __init__(self, series: Series) -> None: ...

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Log metrics.

        Args:
            step: Steps since the start of training; never decreases between calls.
            values: Metrics by names such as `step/loss` and `epoch/valid/auc`; NaN if not finite.
        """

    def close(self, *, finished: bool) -> None:
        """Flush and release all resources.

        Args:
            finished: Whether training is complete; otherwise it may be resumed.
        """


def flat(values: Mapping[str, Any], separator: str, prefix: str = "") -> dict[str, Any]:
    """Flatten nested mappings to one level, with key paths as names; lists stay as they are."""
    leaves: dict[str, Any] = {}
    for name, value in values.items():
        path = f"{prefix}{separator}{name}" if prefix else str(name)
        leaves.update(flat(value, separator, path) if isinstance(value, Mapping) else {path: value})
    return leaves
