"""What a tracker is. One of another package derives from `Tracker` (docs/security.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from recsys_cli.workspace import TrainedRun


@dataclass(frozen=True)
class Series:
    """What is about to be logged.

    Attributes:
        run: The run; its folder's name is the name of the series.
        config: The whole config, as plain values.
        done: Steps that are done: 0, or where a resumed run goes on.
    """

    run: TrainedRun
    config: Mapping[str, Any]
    done: int = 0


class Tracker(Protocol):
    """Writes numbers over steps to where another program shows them. Made as `Class(series)`; raises what it likes.

    Attributes:
        rewinds: Whether it takes back what it has of later steps than `series.done`. One that cannot is not told those
            steps of a resumed run that it was told before the break: they have the values that they had then.
    """

    rewinds: ClassVar[bool]

    def __init__(self, series: Series) -> None: ...

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Write some numbers.

        Args:
            step: Steps since the start of training; never less than in the call before.
            values: By names such as `step/loss` and `epoch/valid/auc`; NaN where a number is not finite.
        """

    def close(self, *, finished: bool) -> None:
        """Write what is still held, and let go of everything.

        Args:
            finished: Whether training came to its end; otherwise it may be resumed.
        """


def flat(values: Mapping[str, Any], separator: str, prefix: str = "") -> dict[str, Any]:
    """Return nested values by the path of their keys; lists and other leaves are left as they are."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        path = f"{prefix}{separator}{name}" if prefix else str(name)
        found.update(flat(value, separator, path) if isinstance(value, Mapping) else {path: value})
    return found
