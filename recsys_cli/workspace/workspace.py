"""The workspace: lookup of artifacts, and their atomic creation."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from recsys_cli.data.raw_files import is_url
from recsys_cli.errors import MissingArtifactError
from recsys_cli.events import Emit, ignore
from recsys_cli.registry import suggest
from recsys_cli.workspace.artifacts import Artifact, PreparedData, RawData, TrainedRun, TunedStudy, write_manifest
from recsys_cli.workspace.files import flush
from recsys_cli.workspace.locks import Holder, holder_of, locked, replace_folder, scratch_folder, sweep
from recsys_cli.workspace.mirror import Mirror, mirror_folder, publishing

_MAX_LISTED = 8
"""Number of artifacts listed in an error."""


class Workspace:
    """A directory of artifacts: raw/, data/, runs/, tune/, current.yaml; of a URL the mirror of a workspace on object storage.

    Opening it removes the leftovers of killed processes.
    """

    def __init__(self, root: Path | str) -> None:
        url = root if isinstance(root, str) and is_url(root) else None
        self.root = Path(root) if url is None else mirror_folder(url)
        sweep(self.root)
        if url is not None:
            Mirror(self.root, url).pull()

    def raw(self, dataset: str) -> RawData:
        """Return a dataset, existing or not."""
        return RawData(self.root / "raw" / dataset)

    def data(self, key: str) -> PreparedData:
        """Return the prepared data with a key, existing or not."""
        return PreparedData(self.root / "data" / key[:16])

    def study(self, key: str) -> TunedStudy:
        """Return the study with a key, existing or not."""
        return TunedStudy(self.root / "tune" / key[:16])

    def studies(self) -> list[TunedStudy]:
        """Return all studies."""
        return [TunedStudy(path) for path in self._artifacts("tune")]

    def all_raw(self) -> list[RawData]:
        """Return all downloaded datasets."""
        return [RawData(path) for path in self._artifacts("raw")]

    def all_data(self) -> list[PreparedData]:
        """Return all prepared data."""
        return [PreparedData(path) for path in self._artifacts("data")]

    def _artifacts(self, kind: str) -> list[Path]:
        return sorted(manifest.parent for manifest in (self.root / kind).glob("*/manifest.json"))

    def leftovers(self) -> list[Path]:
        """Return folders that no command reads: those without a manifest, unless they are runs to resume."""
        read = {one.folder for one in (*self.all_raw(), *self.all_data(), *self.studies(), *self.runs())}
        found = {path for kind in ("raw", "data", "runs", "tune") for path in (self.root / kind).glob("[!.]*/")}
        return sorted(found - read)

    def run(self, name: str) -> TrainedRun:
        """Return a run by its name, a unique prefix or suffix of it, or its model: of several the latest finished one.

        Raises:
            MissingArtifactError: No run matches, or several begin or end so.
        """
        matches = self.runs_like(name)
        models = {model_of(run) for run in self.runs()}
        if matches and (len(matches) == 1 or name in models):
            return max(matches, key=_age)
        unknown = f"no run {name!r} in {self.root}{suggest(name, sorted(models))}"
        what = f"{len(matches)} runs match {name!r} in {self.root}" if matches else unknown
        raise MissingArtifactError(
            f"{what}; there are: {_listed(matches or self.runs())}",
            hint="name one of them in full" if matches else "recsys status",
        )

    def data_of(self, run: TrainedRun) -> PreparedData:
        """Return the verified prepared data of a run.

        Raises:
            MissingArtifactError: The run is not finished, or the data or one of its files is missing.
            DataError: A file is damaged.
        """
        key = str(finished(run).manifest["data"].get("key"))
        data = self.data(key)
        if not data.exists or data.key != key:
            raise MissingArtifactError(
                f"the training data of {run.folder.name}, {data.folder}, does not exist",
                hint=f"recsys etl {run.config}",
            )
        data.verify()
        return data

    def runs_like(self, name: str) -> list[TrainedRun]:
        """Return the run with a name, or else by prefix or suffix, or else the runs of a model."""
        runs = self.runs()
        exact = [run for run in runs if run.folder.name == name]
        parts = [run for run in runs if run.folder.name.startswith(name) or run.folder.name.endswith(name)]
        return exact or parts or [run for run in runs if model_of(run) == name]

    def run_or_data(self, name: str) -> TrainedRun | PreparedData:
        """Return the run of a name, see `run`, or the single prepared data."""
        runs, data = self.runs_like(name), [data for data in self.all_data() if data.folder.name.startswith(name[:16])]
        if runs and not data:
            return self.run(name)
        if len(data) == 1 and not runs:
            return data[0]
        what = (
            f"{len(runs) + len(data)} runs or prepared data match {name!r}"
            if data
            else f"no run or prepared data {name!r}"
        )
        candidates = [*runs, *data] or [*self.runs(), *self.all_data()]
        raise MissingArtifactError(
            f"{what} in {self.root}; there are: {_listed(candidates)}",
            hint="name one of them in full" if data else "recsys status",
        )

    def runs(self) -> list[TrainedRun]:
        """Return all runs, finished or not, oldest first."""
        folder = self.root / "runs"
        if not folder.is_dir():
            return []
        runs = [TrainedRun(path) for path in sorted(folder.iterdir())]
        return [run for run in runs if run.config.is_file() or run.exists]

    def new_run(self, model: str, key: str) -> TrainedRun:
        """Return a new run; its name is sortable by time and ends with a prefix of the key."""
        return self.run_named(f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{model.rpartition('.')[2]}-{key[:8]}")

    def run_named(self, name: str) -> TrainedRun:
        """Return the run with a name, existing or not."""
        return TrainedRun(self.root / "runs" / name)

    @property
    def current(self) -> Path:
        """The config of the last stage."""
        return self.root / "current.yaml"

    @property
    def cache(self) -> Path:
        """The folder of partial downloads."""
        return self.root / "raw" / ".cache"

    def scratch(self) -> AbstractContextManager[Path]:
        """See `locks.scratch_folder`."""
        return scratch_folder(self.root)

    def lock(self, name: str, *, timeout: float = 600, emit: Emit = ignore) -> AbstractContextManager[None]:
        """See `locks.locked`."""
        return locked(self.root, name, timeout=timeout, emit=emit)

    def trainer(self, run: TrainedRun) -> Holder | None:
        """Return the process training or evaluating a run."""
        return holder_of(self.root, run_lock(run))

    @contextmanager
    def create(self, artifact: Artifact, manifest: dict[str, Any]) -> Iterator[Path]:
        """Yield a folder to fill; then write the manifest and move the folder to the artifact's path.

        The manifest is filled by the caller until then, with at least `key`.
        """
        with self.scratch() as folder:
            made = folder / "artifact"
            made.mkdir()
            yield made
            write_manifest(made, type(artifact).__name__, manifest)
            with publishing(artifact.folder):
                replace_folder(folder, made, artifact.folder)
                flush(artifact.folder.parent)

    def remove(self, artifact: Artifact) -> None:
        """Remove an artifact atomically."""
        with publishing(artifact.folder), self.scratch() as folder:
            artifact.folder.replace(folder / "removed")


def model_of(run: TrainedRun) -> str:
    """Return the name of a run's model, the middle of the folder's name."""
    return run.folder.name.partition("-")[2].rpartition("-")[0]


def _age(run: TrainedRun) -> tuple[bool, str, int]:
    """Return a sort key, finished runs last: by the second in the name, then by the manifest."""
    manifest = run.folder / "manifest.json"
    is_finished = manifest.is_file()
    return is_finished, run.folder.name.partition("-")[0], manifest.stat().st_mtime_ns if is_finished else 0


def run_lock(run: TrainedRun) -> str:
    """Return the name of the lock for writing into a run's folder."""
    return f"run-{run.folder.name}"


def _listed(artifacts: Sequence[Artifact]) -> str:
    """List the names of the last artifacts."""
    names = [artifact.folder.name for artifact in artifacts]
    more = f" and {len(names) - _MAX_LISTED:,} more" if len(names) > _MAX_LISTED else ""
    return (", ".join(names[-_MAX_LISTED:]) or "none yet") + more


def finished(run: TrainedRun) -> TrainedRun:
    """Return a run after checking that it is finished."""
    if not run.exists:
        raise not_finished(run)
    return run


def not_finished(run: TrainedRun) -> MissingArtifactError:
    """Return the error for a missing or unfinished run: its progress, and the commands to continue."""
    name = run.folder.name
    if not run.folder.is_dir():
        return MissingArtifactError(f"run {name} does not exist", hint="recsys status lists all runs")
    epochs = _epochs(run)
    best = ", and keeps its best checkpoint" if run.checkpoint("best").is_file() else ""
    return MissingArtifactError(
        f"run {name} is not finished: it is still training, or was interrupted after {epochs} "
        f"epoch{'' if epochs == 1 else 's'}{best}",
        hint=f"recsys train {run.config} --resume continues it; recsys train {run.config} --force starts over",
    )


def _epochs(run: TrainedRun) -> int:
    """Return the number of logged epochs; the last line may be incomplete."""
    number = 0
    if run.metrics.is_file():
        for text in run.metrics.read_text(encoding="utf-8", errors="replace").splitlines():
            with suppress(ValueError, TypeError, KeyError):
                number += json.loads(text)["event"] == "epoch"
    return number
