"""A published dataset as a Source: downloaded or collected, and converted by its description."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from recsys_cli.data.digest import file_digest
from recsys_cli.data.fetch import by_hand_named
from recsys_cli.data.fetch import download as fetch_file
from recsys_cli.data.mirror import address
from recsys_cli.data.published.collect import collect, expected, place
from recsys_cli.data.published.description import Description, Download, Options, stored
from recsys_cli.data.source import DatasetInfo, FetchRequest, RawTable
from recsys_cli.errors import ConfigError, DataError
from recsys_cli.events import Emit

FORMAT = 2  # version of the converted files


class Published:
    """A published dataset.

    Args:
        description: Files, tables and license.
        options: Selection of parts.
    """

    def __init__(self, description: Description, options: Options) -> None:
        self._description = description
        self._options = options

    @property
    def info(self) -> DatasetInfo:
        """The catalog entry."""
        return self._description.info

    @property
    def downloads(self) -> tuple[Download, ...]:
        """The publisher's files of the selected parts."""
        return self._description.downloads_of(self._options.parts)

    def identity(self) -> dict[str, object]:
        """Return the names and digests of the files, and the options."""
        files = {one.name: one.digest.value if one.digest else None for one in self.downloads}
        return {"format": FORMAT, "files": files, **self._options.model_dump(mode="json")}

    def fetch(self, request: FetchRequest, emit: Emit) -> dict[str, object]:
        """Fill the folder with the files of the tables.

        Raises:
            ConfigError: The files have to be fetched by hand, or the local ones are incomplete.
            DataError: A download, an archive or a file is wrong or damaged.
        """
        if request.from_file:
            collect(self.downloads, request.from_file, request.folder, emit=emit)
            origin = str(request.from_file)
        else:
            origin = self._download(request, emit)
        originals = [stored(request.folder / one.folder, name) for one in self.downloads for name in one.files]
        facts: dict[str, object] = {
            "origin": origin,
            "bytes": sum(file.stat().st_size for file in originals),
            "md5": {str(file.relative_to(request.folder)): file_digest(file) for file in originals},
            "verified": {one.name: _verified(one, request) for one in self.downloads},
        }
        if self._description.convert:
            with _named_as_given(originals, request.from_file):
                self._description.convert(request.folder, originals, emit)
            _drop(originals, request.folder)
        return facts

    def tables(self, folder: Path) -> tuple[RawTable, ...]:
        """Describe the files in a folder."""
        return self._description.tables_in(folder, self._options.parts)

    def _download(self, request: FetchRequest, emit: Emit) -> str:
        urls = [(one, address(one.name, one.url, request.mirror)) for one in self.downloads]
        for one, url in urls:
            if not url:
                raise self._by_hand()
            target = request.cache / self._description.name / one.name
            with by_hand_named(self._by_hand_hint()):
                fetch_file(url, target, digest=one.digest, emit=emit)
            place(one, target, request.folder, emit=emit)
            if one.digest is None or not one.members:  # nothing to verify a second use, or in the folder already
                target.unlink()
        return urls[0][1]

    def _by_hand(self) -> ConfigError:
        described = self._description
        why = "needs a login at its publisher" if described.access == "login" else "has no public address any more"
        return ConfigError(f"{described.name} {why}, so it cannot be downloaded here", hint=self._by_hand_hint())

    def _by_hand_hint(self) -> str:
        described = self._description
        command = described.name if self._options == described.options() else "CONFIG"
        single = len(self.downloads) == 1
        file = self.downloads[0].name if single else f"FOLDER ({expected(self.downloads)})"
        steps = described.steps or f"take {expected(self.downloads, content=False)}"
        return f"{steps}: {described.homepage}; then run: recsys download {command} --from-file {file}"


@contextmanager
def _named_as_given(originals: list[Path], given: Path | None) -> Iterator[None]:
    """Add the given file to an error about the only original, if it has another name."""
    try:
        yield
    except DataError as error:
        if given is None or len(originals) > 1 or given.is_dir() or given.name == originals[0].name:
            raise
        raise DataError(f"{given}, read as {error.message}", hint=error.hint) from error


def _verified(download: Download, request: FetchRequest) -> bool | None:
    """Whether a fetched file has its published digest; None without a digest, or for unpacked files of an archive."""
    if download.digest is None:
        return None
    if not download.members:
        return download.digest.matches(stored(request.folder / download.folder, download.name))
    if request.from_file is None:
        return True  # the download was refused otherwise
    packed = request.from_file / download.name if request.from_file.is_dir() else request.from_file
    return download.digest.matches(packed) if packed.is_file() else None


def _drop(originals: list[Path], folder: Path) -> None:
    for file in originals:
        if file.parent == folder:
            file.unlink()
        else:
            shutil.rmtree(file.parent, ignore_errors=True)
