"""What the updates of a served recommender have taken and made, as `recsys update` leaves it and `recsys watch` reads it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from recsys_cli.errors import DataError
from recsys_cli.etl.calendar import Day
from recsys_cli.workspace import read_json, write_json


@dataclass
class State:
    """What the updates so far have taken and made; one JSON file, replaced at the end of each update.

    Attributes:
        key: Key of the inputs of the last update.
        files: Checksums of the interaction files by path.
        tables: Key of the content of the joined tables.
        rows: Number of all rows so far.
        through: Time of the last row, in seconds since 1970.
        days: Facts of the accepted days.
        ids: Prepared data with the latest vocabularies.
        versions: Published versions: number, run, data, metric, value and training settings.
        candidates: Runs and prepared data since the last published version, which may be none of its.
        since_full: Updates since the last full training.
        drift: Gains over the version before and their standard errors, by update since then.
        refused: Result of the last update, if it was refused.
        history: Figures of each trained model, such as its day, metric, mean score and coverage.
    """

    key: str = ""
    files: dict[str, str] = field(default_factory=dict)
    tables: str = ""
    rows: int = 0
    through: float | None = None
    days: list[Day] = field(default_factory=list)
    ids: str = ""
    versions: list[dict[str, Any]] = field(default_factory=list)
    candidates: list[dict[str, str]] = field(default_factory=list)
    since_full: int = 0
    drift: list[list[float]] = field(default_factory=list)
    refused: dict[str, Any] | None = None
    history: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> State:
        """Read the file; an empty state without one."""
        if not path.is_file():
            return cls()
        hint = f"remove {path.parent}: the next update trains anew on all rows, beside the served version"
        content = read_json(path, hint=hint, expected={"files": dict, "days": list})
        try:
            sums = [
                {**day, "sums": {name: tuple(of) for name, of in day["sums"].items()}} for day in content.pop("days")
            ]
            return cls(**content, days=[Day(**day) for day in sums])
        except (TypeError, KeyError, AttributeError) as error:
            raise DataError(f"{path}: {error}", hint=hint) from error

    def write(self, path: Path) -> None:
        """Replace the file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {**vars(self), "days": [asdict(day) for day in self.days]})
