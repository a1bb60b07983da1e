"""Artifacts: folders with a manifest, identified by a key."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Self

from recsys_cli import __version__
from recsys_cli.errors import DataError, RecsysError
from recsys_cli.features.schema import Role, Schema, file_of
from recsys_cli.ops.steps import COLD, INTERACTIONS
from recsys_cli.workspace.files import MANIFEST, check_sizes, checksums, read_json, verify, write_json
from recsys_cli.workspace.mirror import mirror_of, publishing

FORMAT = 7
"""Format version of all artifacts; part of every key, so that versions never share artifacts."""


def key_of(*parts: Any) -> str:
    """Return the SHA-256 of the canonical JSON of an artifact's settings and inputs."""
    text = json.dumps([FORMAT, *parts], sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def write_manifest(folder: Path, kind: str, manifest: Mapping[str, Any]) -> None:
    """Write manifest.json, with checksums of the artifact's files."""
    artifact = _KINDS[kind](folder)
    head = {
        "kind": kind,
        "format": FORMAT,
        "recsys": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    files = checksums(folder, artifact.contents())
    with publishing(folder):
        write_json(folder / MANIFEST, {**head, **manifest, "files": files})


class _File:
    """A file of an artifact, as the attribute of the artifact's class."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, artifact: Artifact, owner: type[Artifact]) -> Path:
        return artifact.folder / self.name


@dataclass(frozen=True)
class Artifact:
    """A folder with a manifest, written last: a folder without it is incomplete."""

    folder: Path

    expected: ClassVar[Mapping[str, type]] = {"key": str}
    """Required keys of the manifest, with their types."""
    command: ClassVar[str] = "run its stage again with --force"
    """How to create the artifact again; `{}` is the name of its folder."""

    def contents(self) -> list[Path]:
        """Return the immutable files, listed with checksums in the manifest."""
        files = (path for path in self.folder.rglob("*") if path.is_file() and not path.name.startswith("."))
        return [path for path in files if path != self.folder / MANIFEST]

    @property
    def remake(self) -> str:
        """Hint of errors about a damaged artifact."""
        return self.command.format(self.folder.name)

    @property
    def exists(self) -> bool:
        """Whether the artifact is complete."""
        return (self.folder / MANIFEST).is_file()

    @property
    def manifest(self) -> dict[str, Any]:
        """Inputs, settings, results and checksums of the artifact.

        Raises:
            MissingArtifactError: There is no manifest.
            DataError: The manifest is damaged, or of another format version.
        """
        manifest = read_json(self.folder / MANIFEST, hint=self.remake, expected=self.expected)
        if (version := manifest.get("format", FORMAT)) != FORMAT:
            raise DataError(
                f"{self.folder} has artifact format {version}; this version of recsys reads format {FORMAT}",
                hint=self.remake,
            )
        return manifest

    @property
    def key(self) -> str:
        """Hash of the settings and inputs."""
        return str(self.manifest["key"])

    @property
    def damage(self) -> str | None:
        """Damage of the manifest or the file sizes; None without damage. File contents are not read."""
        try:
            check_sizes(self.folder, self._present(), hint=self.remake)
        except RecsysError as error:
            return f"{error.message} ({error.hint})"
        return None

    @property
    def made_by(self) -> str | None:
        """The recsys version of the artifact, if another one."""
        version = self.manifest.get("recsys")
        return None if version in {None, __version__} else str(version)

    def is_made(self, key: str) -> bool:
        """Whether the artifact has a key, and all files in full size."""
        return self.exists and self.damage is None and self.key == key

    def fetch(self, *only: Path) -> Self:
        """Fetch some files, or all, that are on object storage only; return the artifact."""
        if (mirror := mirror_of(self.folder)) is not None:
            mirror.fetch(only or mirror.absent(self.folder))
        return self

    @property
    def absent(self) -> set[Path]:
        """The files that are on object storage only."""
        return set() if (mirror := mirror_of(self.folder)) is None else mirror.absent(self.folder)

    def _present(self) -> dict[str, Any]:
        """Return the files of the manifest without those on object storage only."""
        files, absent = self.manifest.get("files", {}), self.absent
        return {name: entry for name, entry in files.items() if self.folder / name not in absent}

    def verify(self, *only: Path, hint: str | None = None) -> None:
        """Verify the checksums of some files, or of all, once per process and file; the default hint is `remake`.

        Raises:
            MissingArtifactError: A file is missing.
            DataError: A file is damaged.
        """
        files = self.manifest.get("files", {})
        names = {path.relative_to(self.folder).as_posix() for path in only} or set(files)
        self.fetch(*(self.folder / name for name in names))
        verify(self.folder, {name: files[name] for name in files if name in names}, hint=hint or self.remake)

    def verify_changed(self) -> None:
        """Verify the sizes of all files, and the checksums of files modified after the manifest.

        Unchanged files are not read: their readers verify them.

        Raises:
            MissingArtifactError: A file is missing.
            DataError: A file is damaged.
        """
        files = self._present()
        check_sizes(self.folder, files, hint=self.remake)
        written = (self.folder / MANIFEST).stat().st_mtime_ns
        changed = [path for path in map(self.folder.joinpath, files) if path.stat().st_mtime_ns > written]
        if changed:
            self.verify(*changed)


_REMEASURE = "recsys evaluate --force"


def read_evaluation(path: Path) -> dict[str, Any]:
    """Read the evaluation.json of the run in its folder."""
    found = read_json(path, hint=_REMEASURE, expected={"key": str, "pointwise": dict, "ranking": dict})
    if found.get("run", path.parent.name) != path.parent.name:
        raise DataError(f"{path} is of the run {found['run']}", hint=_REMEASURE)
    return found


@dataclass(frozen=True)
class RawData(Artifact):
    """A downloaded and unpacked dataset."""

    command: ClassVar[str] = "recsys download {} --force"


@dataclass(frozen=True)
class PreparedData(Artifact):
    """The output of `recsys etl`."""

    expected: ClassVar[Mapping[str, type]] = {"key": str, "rows": dict}
    command: ClassVar[str] = "recsys etl --force"
    report = _File("report.html")
    facts = _File("report.json")
    """The facts of the data report."""
    raw_columns = _File(f"state/inputs/{file_of(INTERACTIONS)}")
    """The Parquet file, without rows, with names and types of the raw interactions."""

    @property
    def schema(self) -> Schema:
        """Schema of the prepared columns."""
        return Schema.read(self.folder / "schema.json")

    def shards(self, split: str) -> list[Path]:
        """Return the Parquet files of a split, in order."""
        return sorted((self.folder / split).glob("*.parquet"))

    def rows(self, split: str) -> int:
        """Return the number of rows of a split."""
        return int(self.manifest["rows"].get(split, 0))

    def table(self, key_column: str) -> Path:
        """Return a dimension table: row i belongs to id i, rows after the last id to cold keys."""
        return self.folder / "tables" / file_of(key_column)

    def cold_keys(self, key_column: str) -> Path:
        """Return the file of a dimension table's cold keys and their rows; missing without cold keys."""
        return self.folder / "state" / str(COLD) / file_of(key_column)

    def vocabulary(self, name: str) -> Path:
        """Return a vocabulary, with `value` and `count`: row i belongs to id i + 3."""
        return self.folder / "vocab" / file_of(name)


class _EvaluationFile(_File):
    """A file of the evaluation that a run selects."""

    def __get__(self, artifact: Artifact, owner: type[Artifact]) -> Path:
        path, candidates = super().__get__(artifact, owner), artifact.candidates  # type: ignore[attr-defined]
        return path if candidates == "all" else path.with_stem(f"{path.stem}-{candidates}")


@dataclass(frozen=True)
class TrainedRun(Artifact):
    """The output of `recsys train`; during training without a manifest, but with a `last` checkpoint for --resume.

    `candidates` selects an evaluation: full and sampled ones have separate files.
    """

    candidates: str = "all"

    expected: ClassVar[Mapping[str, type]] = {"key": str, "data": dict}
    config = _File("config.yaml")
    metrics = _File("metrics.jsonl")
    """Events and metrics of the training, one JSON object per line."""
    choice = _File("candidates.json")
    """Candidates of `auto`, in the run of the best."""
    evaluation = _EvaluationFile("evaluation.json")
    """The results of `recsys evaluate`."""
    rankings = _EvaluationFile("rankings.safetensors")
    """The values behind the metrics."""
    report = _EvaluationFile("report.html")

    @property
    def remake(self) -> str:
        """Hint with the command to create the artifact again."""
        return f"recsys train {self.config} --force"

    def verify_config(self) -> None:
        """Verify the checksum of the config; see `verify`."""
        self.verify(self.config, hint="recsys train CONFIG --force, with the config of the run")

    def evaluated(self, candidates: str | None = None) -> TrainedRun:
        """Return the run with another selected evaluation: by default the full one, or else a sampled one."""
        if candidates is not None:
            return replace(self, candidates=candidates)
        sampled = sorted(self.folder.glob("evaluation-*.json"))
        if self.evaluation.is_file() or not sampled:
            return self
        return replace(self, candidates=sampled[0].stem.removeprefix("evaluation-"))

    def contents(self) -> list[Path]:
        """Return the inputs of an evaluation; `last` has its own checksum, because --resume has no manifest."""
        return [path for path in (self.config, self.metrics, self.checkpoint("best")) if path.is_file()]

    def checkpoint(self, which: str) -> Path:
        """Return the file of the `best` or the `last` checkpoint."""
        return self.folder / "checkpoints" / f"{which}.safetensors"

    def read_evaluation(self) -> dict[str, Any]:
        """Read the results of `recsys evaluate`.

        Raises:
            MissingArtifactError: The run has no evaluation.
            DataError: The file is damaged.
        """
        return {name: value for name, value in read_evaluation(self.evaluation).items() if name != "files"}

    def write_evaluation(self, results: Mapping[str, Any]) -> None:
        """Write the results, with checksums of rankings and report; the last file of an evaluation."""
        with publishing(self.folder):
            write_json(self.evaluation, {**results, "files": checksums(self.folder, (self.rankings, self.report))})

    def verify_evaluation(self) -> None:
        """Verify the checksums of rankings and report.

        Raises:
            MissingArtifactError: A file is missing.
            DataError: A file is damaged.
        """
        self.fetch(self.rankings, self.report)
        verify(self.folder, read_evaluation(self.evaluation).get("files", {}), hint=_REMEASURE)


@dataclass(frozen=True)
class TunedStudy(Artifact):
    """The output of `recsys tune`; it grows with every trial."""

    expected: ClassVar[Mapping[str, type]] = {"key": str, "metric": dict, "trials": dict, "space": dict}
    command: ClassVar[str] = "recsys tune --force"
    journal = _File("journal.jsonl")
    """The trials, in the format of the search library."""
    best = _File("best.yaml")
    """The config of the best trial so far."""
    report = _File("tune.html")

    def contents(self) -> list[Path]:
        """Return no files: all of them change with every trial."""
        return []


@dataclass(frozen=True)
class Bundle(Artifact):
    """The output of `recsys export`: a relocatable folder with a model and all that its answers need."""

    expected: ClassVar[Mapping[str, type]] = {"key": str, "run": dict, "files": dict}
    command: ClassVar[str] = "recsys export RUN --force"
    model = _File("model.json")
    """Name, options and traits of the model, as JSON."""
    weights = _File("weights.safetensors")
    """The weights of the model."""
    histories = _File("histories")
    """The folder of user histories; missing if they were left out."""
    counts = _File("counts.npy")
    """Train rows by encoded item."""
    titles = _File("titles.parquet")
    """Item titles, in the order of `IdNames.values`; missing without titles."""
    items = _File("items.parquet")
    """Raw values of items by joined column, in the order of `IdNames.values`; missing in bundles of earlier versions."""
    index = _File("vocab-index")
    """The folder of sorted hashes of all vocabularies."""
    signature = _File("signature.json")
    """Inputs and outputs with their types, as JSON."""
    card = _File("model_card.md")
    """The model card, as Markdown."""

    @property
    def data(self) -> PreparedData:
        """Schema, feature plan, vocabularies and dimension tables, without rows."""
        return PreparedData(self.folder / "data")

    def ids(self, role: Role) -> Path:
        """Return the raw ids of users or items."""
        return self.index / f"{role}.arrow"


class TritonRepository(Artifact):
    """The output of `recsys export --format triton`: a model repository of the Triton Inference Server, with one bundle."""

    expected: ClassVar[Mapping[str, type]] = {"key": str, "bundle": str, "models": list, "files": dict}
    command: ClassVar[str] = "recsys export RUN --format triton --force"

    @property
    def bundle(self) -> Bundle:
        """The bundle."""
        return Bundle(self.folder / self.manifest["bundle"])


_KINDS: dict[str, type[Artifact]] = {
    kind.__name__: kind for kind in (RawData, PreparedData, TrainedRun, TunedStudy, Bundle, TritonRepository)
}
