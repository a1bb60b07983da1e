"""`recsys publish` and `recsys rollback`: the numbered versions of one recommender, in a folder that servers follow.

versions/000001 is a bundle, deltas/000002.delta changes it into the next one, and the link `current` leads to the served one.
Every step ends with one rename, so that a kill leaves the link at a complete version, and the next call goes on.
"""

from __future__ import annotations

import shutil
from contextlib import AbstractContextManager
from pathlib import Path

from recsys_cli.errors import ConfigError, DataError, MissingArtifactError
from recsys_cli.events import Emit, ignore
from recsys_cli.stages.export import bundle_key, export
from recsys_cli.workspace import Bundle, TrainedRun, Workspace, check_output, replacing, replacing_folder
from recsys_cli.workspace.delta import Version, apply_delta, read_delta, write_delta
from recsys_cli.workspace.files import flush
from recsys_cli.workspace.locks import locked

KEPT = 8
"""Number of versions on disk: the served one, and those of a week before."""
_PUBLISH = "recsys publish FOLDER RUN"


class Publication:
    """Versions of one recommender, of which one is served; the folder may be new."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if Bundle(folder).exists:
            raise ConfigError(f"{folder} is a bundle, not a folder of versions", hint="name another folder")

    @classmethod
    def named(cls, name: str, workspace: Workspace) -> Publication:
        """Return the publication in a folder, or that of `recsys update` by the name of its config."""
        own = workspace.root / "published" / Path(name).stem
        return cls(own if own.is_dir() and not Path(name).is_dir() else Path(name))

    @property
    def versions(self) -> dict[int, Version]:
        """All complete versions by number, in order."""
        return {number: one for number in self._numbers("versions") if (one := self._version(number)).exists}

    @property
    def current(self) -> Version | None:
        """The served version; None before the first."""
        if not (link := self.folder / "current").is_symlink():
            return None
        for one in self.versions.values():
            if link.readlink() == Path("versions") / one.folder.name:
                return one
        raise DataError(f"{link} leads to no version", hint=f"ln -sfn versions/NUMBER {link}")

    def delta(self, number: int) -> Path:
        """Return the path of the delta of a version."""
        return self.folder / "deltas" / f"{number:06}.delta"

    def publish(
        self, run: TrainedRun, workspace: Workspace, emit: Emit = ignore, *, newest: bool = False, keep: int = KEPT
    ) -> Version:
        """Export a run as the next version, write its delta, and serve it; `newest` as of `export`, `keep` of `prune`.

        The latest run gets no second version: an interrupted call is completed, and a version rolled back is served again.
        """
        check_output(self.folder)
        with self._locked("publish", emit):
            base, key = self.current, bundle_key(run, newest=newest)
            version = next((one for one in reversed(self.versions.values()) if one.key == key), None)
            if version is None or (base is not None and version.number < base.number):
                version = self._version(max([0, *self._numbers("versions"), *self._numbers("deltas")]) + 1)
                version.folder.parent.mkdir(exist_ok=True)
                export(run, workspace, out=version.folder, newest=newest, emit=emit)
            with self._locked("current", emit):
                base, delta = self.current, self.delta(version.number)  # a rollback does not wait for the export
                if base is not None and base.number < version.number and not delta.is_file():
                    write_delta(delta, base, version)
                self._serve(version)
                self.prune(keep)
        return version

    def apply(self, path: Path, emit: Emit = ignore) -> Version:
        """Make a version of its base and a delta, and serve it; a delta applied before changes nothing.

        Raises:
            RecsysError: The delta is damaged, or not the next one of a version that is here.
        """
        delta, served = read_delta(path), self._served
        version, base = self._version(delta.target[0]), self._version(delta.base[0])
        with self._locked("publish", emit), self._locked("current", emit):
            if not version.exists or version.digest != delta.target[1]:
                last = max(self._numbers("versions"))
                if version.number <= last or not base.exists:
                    raise (DataError if version.number <= last else MissingArtifactError)(
                        f"{path} makes version {version.number} of {base.number}; the last of {self.folder} is {last}",
                        hint="apply deltas in the order of their numbers, or copy the folder of versions",
                    )
                with replacing_folder(version.folder) as made:
                    apply_delta(path, base, made)
            elif served not in {base, version}:
                return version
            if path.resolve() != (own := self.delta(version.number)).resolve():
                with replacing(own) as copy:
                    shutil.copyfile(path, copy)
            self._serve(version)
            self.prune()
        return version

    def rollback(self, emit: Emit = ignore) -> Version:
        """Serve the version before the served one again.

        Raises:
            MissingArtifactError: There is none.
            DataError: The delta of the served version is damaged, or of another one.
        """
        served = self._served
        with self._locked("current", emit):
            served = self._served  # after other commands
            delta = read_delta(path) if (path := self.delta(served.number)).is_file() else None
            if delta is not None and delta.target != (served.number, served.digest):
                raise DataError(f"{path} is not the delta of version {served.number}", hint=_PUBLISH)
            earlier = [0, *(number for number in self.versions if number < served.number)]
            base = self.versions.get(delta.base[0] if delta is not None else earlier[-1])  # forget removes deltas
            if base is None:
                text = f"{self.folder} has no version before {served.number}, which stays"
                raise MissingArtifactError(text, hint=_PUBLISH)
            base.verify(hint=_PUBLISH)
            self._serve(base)
        return base

    def prune(self, keep: int = KEPT) -> None:
        """Remove the oldest versions with their deltas; `keep` stay, the served one among them."""
        others = [number for number in self._numbers("versions") if self._version(number) != self.current]
        for number in others[: max(0, len(others) - keep + 1)]:
            self.delta(number).unlink(missing_ok=True)
            folder = self._version(number).folder
            folder.replace(folder.with_name(f".{folder.name}.partial"))
        for left in self.folder.glob("*/.*.partial"):  # of killed processes, too
            shutil.rmtree(left) if left.is_dir() else left.unlink()

    @property
    def _served(self) -> Version:
        if (served := self.current) is None:
            raise MissingArtifactError(f"{self.folder} serves no version", hint=_PUBLISH)
        return served

    def _serve(self, version: Version) -> None:
        if (damage := version.damage) is not None:
            raise DataError(f"version {version.number} is damaged: {damage}", hint=_PUBLISH)
        fresh = self.folder / ".current.partial"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(Path("versions") / version.folder.name)
        fresh.replace(self.folder / "current")
        flush(self.folder)

    def _version(self, number: int) -> Version:
        return Version(self.folder / "versions" / f"{number:06}")

    def _numbers(self, kind: str) -> list[int]:
        names = (path.name.removesuffix(".delta") for path in (self.folder / kind).glob("[0-9]*"))
        return sorted(int(name) for name in names if name.isdecimal())

    def _locked(self, name: str, emit: Emit) -> AbstractContextManager[None]:
        return locked(self.folder, name, timeout=600, emit=emit)
