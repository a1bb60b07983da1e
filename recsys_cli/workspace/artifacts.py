"""What an artifact is: a folder with a manifest, known by its key; and what is in the folder of each kind."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from recsys_cli import __version__
from recsys_cli.errors import DataError
from recsys_cli.features.schema import Schema, file_of

FORMAT = 4
"""Version of everything written here; part of every key, so that a new version never takes an old artifact for its own."""


def key_of(*parts: Any) -> str:
    """Return sha256 over the canonical JSON of what an artifact depends on, as hex."""
    text = json.dumps([FORMAT, *parts], sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def write_text(path: Path, text: str) -> None:
    """Write a file whole: to a temporary name, then renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def write_manifest(folder: Path, kind: str, manifest: Mapping[str, Any]) -> None:
    """Write manifest.json: the mark of a whole artifact."""
    head = {
        "kind": kind,
        "format": FORMAT,
        "recsys": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    write_text(folder / "manifest.json", json.dumps({**head, **manifest}, indent=2, default=str) + "\n")


@dataclass(frozen=True)
class Artifact:
    """A folder with a manifest. The manifest is written last: without it there is no artifact."""

    folder: Path

    @property
    def exists(self) -> bool:
        """Whether it is there, whole."""
        return (self.folder / "manifest.json").is_file()

    @property
    def manifest(self) -> dict[str, Any]:
        """What it is, what it was made from and how.

        Raises:
            DataError: The manifest cannot be read.
        """
        try:
            manifest: dict[str, Any] = json.loads((self.folder / "manifest.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise DataError(f"{self.folder}: cannot read its manifest: {error}") from error
        return manifest

    @property
    def key(self) -> str:
        """What it depends on, as one hash."""
        return str(self.manifest["key"])


@dataclass(frozen=True)
class RawData(Artifact):
    """A dataset as it was downloaded and unpacked."""


@dataclass(frozen=True)
class PreparedData(Artifact):
    """What `recsys etl` wrote: encoded shards by split, tables by key column, the vocabularies, the schema and the plan."""

    @property
    def schema(self) -> Schema:
        """The prepared columns."""
        return Schema.read(self.folder / "schema.json")

    def shards(self, split: str) -> list[Path]:
        """Return the parquet files of a split, in order; empty where the split is."""
        return sorted((self.folder / split).glob("*.parquet"))

    def rows(self, split: str) -> int:
        """Return how many rows a split has."""
        return int(self.manifest["rows"].get(split, 0))

    def table(self, key_column: str) -> Path:
        """Return the file with the features of a key column's ids: row i belongs to id i."""
        return self.folder / "tables" / file_of(key_column)

    def vocabulary(self, name: str) -> Path:
        """Return the file with a vocabulary's `value` and `count`: row i belongs to id i + 3."""
        return self.folder / "vocab" / file_of(name)

    @property
    def facts(self) -> Path:
        """What there is to know of the data: the facts of its report."""
        return self.folder / "report.json"

    @property
    def report(self) -> Path:
        """The page that shows them."""
        return self.folder / "report.html"


@dataclass(frozen=True)
class TrainedRun(Artifact):
    """What `recsys train` wrote. While it is being written there is no manifest, but a `last` checkpoint to resume from.

    Attributes:
        candidates: Which of its evaluations is meant, as `evaluate.candidates`: a sampled one never replaces the full one.
    """

    candidates: str = "all"

    def evaluated(self, candidates: str | None = None) -> TrainedRun:
        """Return the run with one of its evaluations.

        Args:
            candidates: Of which; the full one where left out, or a sampled one where there is no other.
        """
        if candidates is not None:
            return replace(self, candidates=candidates)
        sampled = sorted(self.folder.glob("evaluation-*.json"))
        if self.evaluation.is_file() or not sampled:
            return self
        return replace(self, candidates=sampled[0].stem.removeprefix("evaluation-"))

    def _kept(self, name: str) -> Path:
        stem, _, suffix = name.partition(".")
        return self.folder / (name if self.candidates == "all" else f"{stem}-{self.candidates}.{suffix}")

    @property
    def config(self) -> Path:
        """The config that it was trained with."""
        return self.folder / "config.yaml"

    def checkpoint(self, which: str) -> Path:
        """Return the file of the `best` or the `last` checkpoint."""
        return self.folder / "checkpoints" / f"{which}.safetensors"

    @property
    def metrics(self) -> Path:
        """One JSON object a line: what was measured while training."""
        return self.folder / "metrics.jsonl"

    @property
    def evaluation(self) -> Path:
        """What `recsys evaluate` measured."""
        return self._kept("evaluation.json")

    @property
    def rankings(self) -> Path:
        """What those are figures of, user by user and row by row."""
        return self._kept("rankings.safetensors")

    @property
    def report(self) -> Path:
        """The page that shows it."""
        return self._kept("report.html")


@dataclass(frozen=True)
class TunedStudy(Artifact):
    """What `recsys tune` wrote: which values were tried, and how good each was. It grows with every trial."""

    @property
    def journal(self) -> Path:
        """The trials, in the form of the library that chooses them."""
        return self.folder / "journal.jsonl"

    @property
    def best(self) -> Path:
        """The config of the best trial so far."""
        return self.folder / "best.yaml"

    @property
    def report(self) -> Path:
        """The page that shows all of them."""
        return self.folder / "tune.html"
