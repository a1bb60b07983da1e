"""A workspace: where everything in it is, by key and by name, and how an artifact comes to be there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from recsys_cli.errors import MissingArtifactError
from recsys_cli.events import Emit, ignore
from recsys_cli.registry import suggest
from recsys_cli.workspace.artifacts import Artifact, PreparedData, RawData, TrainedRun, TunedStudy, write_manifest
from recsys_cli.workspace.digests import FileChecksums
from recsys_cli.workspace.locks import Holder, holder_of, locked, replace_folder, scratch_folder, sweep
from recsys_cli.workspace.unfinished import not_finished
from recsys_cli.workspace.writing import flush

_NAMED = 8
"""So many artifacts are named where another was asked for."""


class Workspace:
    """A directory with everything that was made: raw/, data/, runs/, tune/, current.yaml.

    To open it sweeps what processes left that were killed.
    """

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)
        sweep(self.root)

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
        """Return what a run was trained on, once its files are found to be as they were written.

        Raises:
            MissingArtifactError: The run is not finished, or the data or a part of it is gone.
            DataError: A file is damaged.
        """
        if not run.exists:
            raise not_finished(run)
        key = str(run.manifest["data"].get("key"))
        data = self.data(key)
        if not data.exists or data.key != key:
            raise MissingArtifactError(
                f"the data that {run.folder.name} was trained on, {data.folder}, is not there",
                hint=f"recsys etl {run.config}",
            )
        data.verify()
        return data

    def runs_like(self, name: str) -> list[TrainedRun]:
        """Return the run of a name, or those that begin or end with it, or those of a model of that name."""
        runs = self.runs()
        exact = [run for run in runs if run.folder.name == name]
        parts = [run for run in runs if run.folder.name.startswith(name) or run.folder.name.endswith(name)]
        return exact or parts or [run for run in runs if f"-{name}-" in run.folder.name]

    def data_like(self, key: str) -> list[PreparedData]:
        """Return the prepared data whose keys begin as given."""
        return [data for data in self.all_data() if data.folder.name.startswith(key[:16])]

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
        runs = [TrainedRun(path) for path in sorted(folder.iterdir())]
        return [run for run in runs if run.config.is_file() or run.exists]

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
    def file_checksums(self) -> FileChecksums:
        """The checksums of the user's own files."""
        return FileChecksums(self.root / ".checksums.json")

    @property
    def cache(self) -> Path:
        """Where partial downloads survive a failed attempt."""
        return self.root / "raw" / ".cache"

    def scratch(self) -> AbstractContextManager[Path]:
        """Give the absolute path of a temporary folder inside; removed at the end, and by the next command after a kill."""
        return scratch_folder(self.root)

    def lock(self, name: str, *, timeout: float = 600, emit: Emit = ignore) -> AbstractContextManager[None]:
        """Hold the workspace's lock of a name, such as "etl"; a second process waits, and says for whom.

        Raises:
            LockedError: It was not free within `timeout` seconds.
        """
        return locked(self.root, name, timeout=timeout, emit=emit)

    def holder(self, name: str) -> Holder | None:
        """Return the process that holds a lock; None where it is free."""
        return holder_of(self.root, name)

    def trainer(self, run: TrainedRun) -> Holder | None:
        """Return the process that trains or evaluates a run; None where there is none."""
        return self.holder(run_lock(run))

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
            replace_folder(folder, made, artifact.folder)
            flush(artifact.folder.parent)

    def remove(self, artifact: Artifact) -> None:
        """Remove an artifact: it is gone at once, or there as it was."""
        with self.scratch() as folder:
            artifact.folder.replace(folder / "removed")


def run_lock(run: TrainedRun) -> str:
    """Return the name of the lock that a process holds while it writes into a run's folder."""
    return f"run-{run.folder.name}"


def _listed(artifacts: Sequence[Artifact]) -> str:
    """Name artifacts, of many the last ones."""
    names = [artifact.folder.name for artifact in artifacts]
    left = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return (", ".join(names[-_NAMED:]) or "none yet") + left
