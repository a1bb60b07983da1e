"""The workspace: the only author of paths in it, and of how an artifact comes to be there: whole, or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from recsys_cli import __version__
from recsys_cli.errors import DataError, MissingArtifactError, RecsysError
from recsys_cli.features.schema import Schema, file_of
from recsys_cli.registry import suggest

FORMAT = 3
"""Version of everything written here; part of every key, so that a new version never takes an old artifact for its own."""
_NAMED = 8
"""So many artifacts are named where another was asked for."""


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
    """What `recsys train` wrote. While it is being written there is no manifest, but a `last` checkpoint to resume from."""

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
        return self.folder / "evaluation.json"

    @property
    def rankings(self) -> Path:
        """What those are figures of, user by user and row by row."""
        return self.folder / "rankings.safetensors"

    @property
    def report(self) -> Path:
        """The page that shows it."""
        return self.folder / "report.html"


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


class Workspace:
    """A directory with everything that was made: raw/, data/, runs/, tune/, current.yaml."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def raw(self, dataset: str) -> RawData:
        """Return a dataset's place, whether or not it is there."""
        return RawData(self.root / "raw" / dataset)

    def data(self, key: str) -> PreparedData:
        """Return the place of the prepared data with a key, whether or not it is there."""
        return PreparedData(self.root / "data" / key[:16])

    def study(self, key: str) -> TunedStudy:
        """Return the place of the study with a key, whether or not it is there."""
        return TunedStudy(self.root / "tune" / key[:16])

    def studies(self) -> list[TunedStudy]:
        """Return the studies that are there, by key."""
        return [TunedStudy(path) for path in self._artifacts("tune")]

    def all_raw(self) -> list[RawData]:
        """Return the datasets that are there, by name."""
        return [RawData(path) for path in self._artifacts("raw")]

    def all_data(self) -> list[PreparedData]:
        """Return the prepared data that is there, by key."""
        return [PreparedData(path) for path in self._artifacts("data")]

    def _artifacts(self, kind: str) -> list[Path]:
        return sorted(manifest.parent for manifest in (self.root / kind).glob("*/manifest.json"))

    def run(self, name: str) -> TrainedRun:
        """Return a run by its name, by a unique beginning or end of it, or by its model where no other run has that.

        Raises:
            MissingArtifactError: There is none such, or more than one.
        """
        found = self.runs_like(name)
        if len(found) == 1:
            return found[0]
        models = {run.folder.name.partition("-")[2].rpartition("-")[0] for run in self.runs()}
        unknown = f"no run {name!r} in {self.root}{suggest(name, sorted(models))}"
        what = f"{len(found)} runs match {name!r}" if found else unknown
        raise MissingArtifactError(f"{what}; there are: {_listed(found or self.runs())}", hint="recsys status")

    def data_of(self, run: TrainedRun) -> PreparedData:
        """Return what a run was trained on.

        Raises:
            MissingArtifactError: The run is not finished, or the data is gone.
        """
        if not run.exists:
            raise MissingArtifactError(f"run {run.folder.name} is not finished", hint="recsys train --resume")
        known = run.manifest["data"]
        data = self.data(known["key"])
        if not data.exists or data.key != known["key"]:
            raise MissingArtifactError(
                f"the data that {run.folder.name} was trained on, {data.folder}, is not there",
                hint=f"recsys etl {run.config}",
            )
        return data

    def runs_like(self, name: str) -> list[TrainedRun]:
        """Return the run of a name, or those that begin or end with it, or those of a model of that name."""
        runs = self.runs()
        exact = [run for run in runs if run.folder.name == name]
        parts = [run for run in runs if run.folder.name.startswith(name) or run.folder.name.endswith(name)]
        return exact or parts or [run for run in runs if f"-{name}-" in run.folder.name]

    def data_like(self, key: str) -> list[PreparedData]:
        """Return the prepared data whose keys begin as given."""
        return [data for data in self.all_data() if data.key.startswith(key)]

    def run_or_data(self, name: str) -> TrainedRun | PreparedData:
        """Return the one run or prepared data that is like a name.

        Raises:
            MissingArtifactError: There is none, or more than one.
        """
        found: list[TrainedRun | PreparedData] = [*self.runs_like(name), *self.data_like(name)]
        if len(found) == 1:
            return found[0]
        what = f"{len(found)} runs or prepared data match {name!r}" if found else f"no run or prepared data {name!r}"
        there = found or [*self.runs(), *self.all_data()]
        raise MissingArtifactError(f"{what} in {self.root}; there are: {_listed(there)}", hint="recsys status")

    def runs(self) -> list[TrainedRun]:
        """Return all runs, finished or not, oldest first."""
        folder = self.root / "runs"
        if not folder.is_dir():
            return []
        return [TrainedRun(path) for path in sorted(folder.iterdir()) if (path / "config.yaml").is_file()]

    def new_run(self, model: str, key: str) -> TrainedRun:
        """Return the place of a new run: its name sorts by time and ends in the key's beginning."""
        return self.run_named(f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{model.rpartition('.')[2]}-{key[:8]}")

    def new_trace(self, name: str) -> Path:
        """Return the file of a profiler's trace, in a folder that is there."""
        folder = self.root / "profiles"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{name}.trace.json.gz"

    def run_named(self, name: str) -> TrainedRun:
        """Return the place of a run, whether or not it is there."""
        return TrainedRun(self.root / "runs" / name)

    @property
    def current(self) -> Path:
        """The config that the last stage used."""
        return self.root / "current.yaml"

    @property
    def cache(self) -> Path:
        """Where partial downloads survive a failed attempt."""
        return self.root / "raw" / ".cache"

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """Give a temporary folder inside the workspace; removed at the end, and by the next command after a kill.

        Its path is absolute: workers of a cluster have other working directories.
        """
        self._sweep()
        folder = self.root.absolute() / ".scratch" / f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
        owner = self._owner(folder)
        with owner:
            folder.mkdir(parents=True)
            try:
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)
                Path(owner.lock_file).unlink(missing_ok=True)

    @contextmanager
    def create(self, artifact: Artifact, manifest: dict[str, Any]) -> Iterator[Path]:
        """Give a folder to fill; at the end add the manifest and rename it to the artifact's place, replacing an old one.

        Args:
            artifact: What is being made.
            manifest: Filled by the caller until the end of the block; needs `key`. Kind, version and time are added.
        """
        with self.scratch() as folder:
            made = folder / "artifact"
            made.mkdir()
            yield made
            write_manifest(made, type(artifact).__name__, manifest)
            artifact.folder.parent.mkdir(parents=True, exist_ok=True)
            if artifact.folder.exists():
                artifact.folder.replace(folder / "old")
            made.replace(artifact.folder)

    def remove(self, artifact: Artifact) -> None:
        """Remove an artifact: it is gone at once, or there as it was."""
        with self.scratch() as folder:
            artifact.folder.replace(folder / "removed")

    @contextmanager
    def lock(self, name: str, *, timeout: float = 600) -> Iterator[None]:
        """Hold the workspace's lock of a name, such as "etl"; a second process waits.

        Raises:
            RecsysError: It was not free within `timeout` seconds.
        """
        path = self.root / ".locks" / f"{name}.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path)
        try:
            lock.acquire(timeout=timeout)
        except Timeout as error:
            raise RecsysError(
                f"another process works on {name} in {self.root} and did not finish within {timeout:.0f} s",
                hint=f"wait for it, or use another --workspace (the lock is {path})",
            ) from error
        try:
            yield
        finally:
            lock.release()

    def _owner(self, scratch: Path) -> FileLock:
        """Return the lock that whoever made a scratch folder holds.

        The system lets go of it when the process ends. The process's number would not tell: containers give the same
        ones again, and another machine that shares the workspace has numbers of its own.
        """
        path = self.root / ".locks" / f"scratch-{scratch.name}.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        return FileLock(path)

    def _sweep(self) -> None:
        """Remove the scratch folders of processes that are no more."""
        parent = self.root / ".scratch"
        for folder in parent.iterdir() if parent.is_dir() else ():
            owner = self._owner(folder)
            try:
                owner.acquire(timeout=0)
            except Timeout:
                continue
            shutil.rmtree(folder, ignore_errors=True)
            Path(owner.lock_file).unlink(missing_ok=True)
            owner.release()


def _listed(artifacts: Sequence[Artifact]) -> str:
    """Name artifacts, of many the last ones."""
    names = [artifact.folder.name for artifact in artifacts]
    left = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return (", ".join(names[-_NAMED:]) or "none yet") + left


def write_manifest(folder: Path, kind: str, manifest: Mapping[str, Any]) -> None:
    """Write manifest.json: the mark of a whole artifact."""
    head = {
        "kind": kind,
        "format": FORMAT,
        "recsys": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    write_text(folder / "manifest.json", json.dumps({**head, **manifest}, indent=2, default=str) + "\n")
