"""What an artifact is: a folder with a manifest, known by its key; and what is in the folder of each kind."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from recsys_cli import __version__
from recsys_cli.errors import DataError, RecsysError
from recsys_cli.features.schema import Schema, file_of
from recsys_cli.features.steps import COLD
from recsys_cli.workspace.checksums import check_sizes, checksums, verify
from recsys_cli.workspace.reading import read_json
from recsys_cli.workspace.writing import write_json

MANIFEST = "manifest.json"
FORMAT = 7
"""Version of everything written here; part of every key, so that a new version never takes an old artifact for its own."""


def key_of(*parts: Any) -> str:
    """Return sha256 over the canonical JSON of what an artifact depends on, as hex."""
    text = json.dumps([FORMAT, *parts], sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def write_manifest(folder: Path, kind: str, manifest: Mapping[str, Any]) -> None:
    """Write manifest.json, with the checksums of what the artifact holds: the mark of a whole artifact."""
    artifact = _KINDS[kind](folder)
    head = {
        "kind": kind,
        "format": FORMAT,
        "recsys": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    files = checksums(folder, artifact.contents())
    write_json(folder / MANIFEST, {**head, **manifest, "files": files})


@dataclass(frozen=True)
class Artifact:
    """A folder with a manifest. The manifest is written last: without it there is no artifact."""

    folder: Path

    expected: ClassVar[Mapping[str, type]] = {"key": str}
    """What its manifest has to hold."""

    def contents(self) -> list[Path]:
        """Return the files that do not change once the manifest is there: it holds their checksums."""
        files = (path for path in self.folder.rglob("*") if path.is_file() and not path.name.startswith("."))
        return [path for path in files if path != self.folder / MANIFEST]

    @property
    def remake(self) -> str:
        """How to make it again."""
        return "run the stage that makes it with --force"

    @property
    def exists(self) -> bool:
        """Whether it is there, whole."""
        return (self.folder / MANIFEST).is_file()

    @property
    def manifest(self) -> dict[str, Any]:
        """What it is, what it was made from and how.

        Raises:
            MissingArtifactError: There is no manifest.
            DataError: The manifest is damaged, or of another format version.
        """
        manifest = read_json(self.folder / MANIFEST, hint=self.remake, expected=self.expected)
        if (version := manifest.get("format", FORMAT)) != FORMAT:
            raise DataError(
                f"{self.folder} has artifact format {version} (recsys {manifest.get('recsys')}); "
                f"recsys {__version__} reads format {FORMAT}",
                hint=self.remake,
            )
        return manifest

    @property
    def key(self) -> str:
        """What it depends on, as one hash."""
        return str(self.manifest["key"])

    @property
    def damage(self) -> str | None:
        """What is wrong with its manifest, or with the sizes of its files; None where nothing is. No file is read whole."""
        try:
            check_sizes(self.folder, self.manifest.get("files", {}), hint=self.remake)
        except RecsysError as error:
            return f"{error.message} ({error.hint})"
        return None

    @property
    def made_by(self) -> str | None:
        """The version of this program that made it, where that is another than this one."""
        version = self.manifest.get("recsys")
        return None if version in {None, __version__} else str(version)

    def is_made(self, key: str) -> bool:
        """Whether it is there with a key, and no file of it is missing or cut."""
        return self.exists and self.damage is None and self.key == key

    def verify(self, *only: Path) -> None:
        """Compare the content of its files with their checksums; a process reads each file once.

        Args:
            only: Those that matter; all where none is given.

        Raises:
            MissingArtifactError: A file is missing.
            DataError: A file is not as it was written.
        """
        files = self.manifest.get("files", {})
        names = {path.relative_to(self.folder).as_posix() for path in only} or set(files)
        verify(self.folder, {name: files[name] for name in files if name in names}, hint=self.remake)


_REMEASURE = "recsys evaluate --force"


def read_evaluation(path: Path) -> dict[str, Any]:
    """Read an evaluation.json.

    Raises:
        MissingArtifactError: There is none.
        DataError: It is damaged.
    """
    return read_json(path, hint=_REMEASURE, expected={"key": str, "pointwise": dict, "ranking": dict})


@dataclass(frozen=True)
class RawData(Artifact):
    """A dataset as it was downloaded and unpacked."""

    @property
    def remake(self) -> str:
        """How to make it again."""
        return f"recsys download {self.folder.name} --force"


@dataclass(frozen=True)
class PreparedData(Artifact):
    """What `recsys etl` wrote: encoded shards by split, tables by key column, the vocabularies, the schema and the plan."""

    expected: ClassVar[Mapping[str, type]] = {"key": str, "rows": dict}

    @property
    def remake(self) -> str:
        """How to make it again."""
        return "recsys etl --force"

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
        """Return the file with the features of a key column: row i belongs to id i, and those behind all ids to cold keys."""
        return self.folder / "tables" / file_of(key_column)

    def cold_keys(self, key_column: str) -> Path:
        """Return the file with the keys of a table that train does not know, and their rows there; missing where it knows all."""
        return self.folder / "state" / str(COLD) / file_of(key_column)

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

    expected: ClassVar[Mapping[str, type]] = {"key": str, "data": dict}

    @property
    def remake(self) -> str:
        """How to make it again."""
        return "recsys train --force"

    def contents(self) -> list[Path]:
        """Return what an evaluation reads; `last` has a checksum of its own, because a run is resumed without a manifest."""
        return [path for path in (self.config, self.metrics, self.checkpoint("best")) if path.is_file()]

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

    def read_evaluation(self) -> dict[str, Any]:
        """Read what `recsys evaluate` measured.

        Raises:
            MissingArtifactError: It is not evaluated.
            DataError: The file is damaged.
        """
        return read_evaluation(self.evaluation)

    def write_evaluation(self, found: Mapping[str, Any]) -> None:
        """Write what was measured, with the checksums of the files beside it: the mark of a whole evaluation."""
        write_json(self.evaluation, {**found, "files": checksums(self.folder, (self.rankings, self.report))})

    def verify_evaluation(self) -> None:
        """Compare the rankings and the report with their checksums.

        Raises:
            MissingArtifactError: A file is missing.
            DataError: A file is not as it was written.
        """
        verify(self.folder, self.read_evaluation().get("files", {}), hint=_REMEASURE)

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

    expected: ClassVar[Mapping[str, type]] = {"key": str, "metric": dict, "trials": dict, "space": dict}

    @property
    def remake(self) -> str:
        """How to make it again."""
        return "recsys tune --force"

    def contents(self) -> list[Path]:
        """Return nothing: its files change with every trial."""
        return []

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


_KINDS: dict[str, type[Artifact]] = {kind.__name__: kind for kind in (RawData, PreparedData, TrainedRun, TunedStudy)}
