"""Workspaces on object storage: commands work in a mirror, a folder of this machine, and complete artifacts are uploaded.

The store has the files of uploads, `files/UPLOAD/…`, and heads, `heads/00000001.json`, which name the files of the workspace. An
artifact's files go first. The next head is created last, and only if nobody has created it (If-None-Match): so an artifact is
complete or absent, and the second of two writers fails and starts from the head of the first.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, NonNegativeInt, StringConstraints

from recsys_cli.data.raw_files import holds_secret, url_errors
from recsys_cli.errors import ConfigError, DataError, LockedError
from recsys_cli.workspace.files import MANIFEST, MAX_JSON, checksum_of, replacing, whole, write_text
from recsys_cli.workspace.locks import holder_of, locked

S3_MIRROR = "RECSYS_S3_MIRROR"
"""Environment variable of the folder of mirrors."""
_CURRENT, _STUDIES, _HEADS = "current.yaml", "tune/", 20
_FILE = r"^(current\.yaml|(raw|data|runs|tune)/[^/.][^/]*(/\.?[^/.][^/]*)+)$"
_BLOCK, _SMALL = 16 << 20, 8 << 20
"""Bytes of an object, because killed multipart uploads stay; and of a file that is fetched with its head, not by its first use."""
_LONG, _ABANDONED = 86_400.0, 7 * 86_400
"""Seconds for a lock; and until the files of an upload without a head are removed. Those of this mirror are removed at once."""
Entry = tuple[NonNegativeInt, str, str]
Files = dict[Annotated[str, StringConstraints(pattern=_FILE)], Entry]


class Head(BaseModel):
    """The files of a workspace, each with its size, CRC-32 and upload."""

    number: NonNegativeInt = 0
    files: Files = {}

    def part(self, part: str) -> Files:
        """Return the files of an artifact, KIND/NAME, or the current config."""
        return {name: entry for name, entry in self.files.items() if _part(name) == part}


def _part(name: str) -> str:
    return "/".join(name.split("/")[:2])


def mirror_folder(url: str) -> Path:
    """Return the mirror of a workspace on object storage: below RECSYS_S3_MIRROR, or the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "recsys"
    name = f"{re.sub('[^A-Za-z0-9.-]+', '-', url)[:60]}-{hashlib.sha256(url.rstrip('/').encode()).hexdigest()[:8]}"
    return Path(os.environ.get(S3_MIRROR) or cache).absolute() / name


def mirror_of(path: Path) -> Mirror | None:
    """Return the mirror with an artifact or a current config; None outside of mirrors."""
    for root in (path.parent.parent, path.parent):
        if (address := root / ".mirror" / "url").is_file():
            return Mirror(root, address.read_text(encoding="utf-8"))
    return None


@contextmanager
def publishing(path: Path) -> Iterator[None]:
    """Upload what is written or removed of an artifact or a current config of a mirror; after a kill the next command does.

    Raises:
        DataError: The store is unreachable.
        LockedError: Another machine has written the same study.
    """
    if (mirror := mirror_of(path)) is None:
        yield
        return
    part, upload = path.relative_to(mirror.root).as_posix(), _new_upload()
    with mirror.uploading(part, upload):
        yield
        is_first = mirror.push(part, upload)
    if part.startswith(_STUDIES) and not is_first:
        raise LockedError(
            f"another machine has written the study {path.name} of {mirror.url}, and this one is given up",
            hint=f"tune on one machine, or on several with {S3_MIRROR} on a shared disk",
        )


class Mirror:
    """A folder and its workspace on object storage.

    Raises:
        DataError: The store is unreachable, or a file is damaged; of all methods.
        MissingExtraError: The protocol needs a package that is not installed.
    """

    def __init__(self, root: Path, url: str) -> None:
        if holds_secret(url):
            raise ConfigError("the address of the workspace has a secret", hint="fsspec takes it from the environment")
        self.root, self.url, self._notes = root, url.rstrip("/"), root / ".mirror"

    @cached_property
    def _store(self) -> tuple[Any, str]:
        """The file system, whose packages are imported by the first use, and the path in it."""
        from fsspec.core import url_to_fs

        store: tuple[Any, str] = url_to_fs(self.url)
        return store

    def head(self) -> Head:
        """Return what the mirror has; large files may be in the store only."""
        path = self._notes / "head.json"
        with whole(path, hint=f"remove {self.root}, a copy"):
            return Head.model_validate_json(path.read_bytes()) if path.is_file() else Head()

    def pull(self) -> None:
        """Complete the uploads of killed commands, take over changes of the store, and remove abandoned files there."""
        write_text(self._notes / "url", self.url)
        ended = set()
        for note in (self._notes / "uploads").glob("*"):
            upload, _, part = note.read_text(encoding="utf-8").partition(" ")
            with suppress(LockedError), self.uploading(part, upload, timeout=0):
                self.push(part, upload)
                ended.add(upload)
        with locked(self.root, "mirror", timeout=_LONG), url_errors(self.url):
            self._take_over(newest := self._newest())
            known, limit = {upload for _, _, upload in newest.files.values()}, _new_upload(time.time() - _ABANDONED)
            uploads = ((name, name.split("/")[1]) for name in self._list("files"))
            self._remove(name for name, one in uploads if one not in known and (one < limit or one in ended))
            self._remove(self._list("heads")[:-_HEADS])

    def _take_over(self, newest: Head) -> None:
        """Replace the files that differ from a head: small ones now, manifests last. What a process here writes stays."""
        old = self.head()
        changed = {name for name in {**old.files, **newest.files} if old.files.get(name) != newest.files.get(name)}
        parts = set(map(_part, changed))
        busy = {part for part in parts if self._is_busy(part)}
        files = {name: entry for name, entry in newest.files.items() if _part(name) not in busy}
        files |= {name: entry for part in busy for name, entry in old.part(part).items()}
        for name, path in (named for part in parts - busy for named in self._files(part).items()):
            if name in changed or name not in files:
                path.unlink()
        small = {name for name, (size, *_) in files.items() if name.count("/") < 3 and size <= _SMALL}
        small |= {name for name in files if name.startswith(_STUDIES)}
        manifests = {name for name in small if name.endswith(f"/{MANIFEST}")}
        self._fetch(files, small - manifests)
        self._keep(Head(number=0 if busy else newest.number, files=files))
        self._fetch(files, manifests)
        for part in parts - set(map(_part, files)):
            shutil.rmtree(self.root / part, ignore_errors=True)

    def _is_busy(self, part: str) -> bool:
        locks = (self.root / ".locks").glob(f"*-{part.rpartition('/')[2]}*.lock")
        return any(holder_of(self.root, lock.stem) for lock in locks)

    def absent(self, folder: Path) -> set[Path]:
        """Return the files of an artifact that are in the store only."""
        files = self.head().part(folder.relative_to(self.root).as_posix())
        return {path for path in map(self.root.joinpath, files) if not path.is_file()}

    def fetch(self, paths: Iterable[Path]) -> None:
        """Fetch those files that are in the store only."""
        with url_errors(self.url):
            self._fetch(self.head().files, (path.relative_to(self.root).as_posix() for path in paths))

    def _fetch(self, files: Files, names: Iterable[str]) -> None:
        missing = [name for name in names if name in files and not (self.root / name).is_file()]
        _parallel(lambda name: self._download(name, *files[name]), missing)

    def _download(self, name: str, size: int, checksum: str, upload: str) -> None:
        with replacing(self.root / name) as partial:
            with partial.open("wb") as file:
                for one in _objects(f"files/{upload}/{name}", size):
                    file.write(self._read(one, min(_BLOCK, size - file.tell())))
            if partial.stat().st_size != size or checksum_of(partial) != checksum:
                raise DataError(f"{self.url}: {name} does not match its checksum", hint="make it again with --force")

    @contextmanager
    def uploading(self, part: str, upload: str, *, timeout: float = _LONG) -> Iterator[None]:
        """Note an upload; the note stays after an error or a kill."""
        name = f"upload-{part.replace('/', '-')}"
        with locked(self.root, name, timeout=timeout):
            write_text(note := self._notes / "uploads" / name, f"{upload} {part}")
            yield
            note.unlink()

    def push(self, part: str, upload: str) -> bool:
        """Upload the changed files of an artifact, then create a head with them; return False after a faster writer."""
        old, here, manifest = self.head().part(part), self._files(part), f"{part}/{MANIFEST}"
        if part != _CURRENT and manifest not in here:
            here = {}  # removed, or never finished
        with url_errors(self.url):
            files = dict(_parallel(lambda name: (name, self._upload(name, old.get(name), upload)), here))
            if manifest in files and files[manifest] == old.get(manifest):
                files = {**old, **files}  # as after an evaluation: other files may be in the store only
            with locked(self.root, "mirror", timeout=_LONG):
                is_first = files == old or self._commit(part, old, files)
            if not is_first:
                self._remove(self._list(f"files/{upload}"))
        return is_first

    def _commit(self, part: str, old: Files, files: Files) -> bool:
        """Create the next head, with the files of an artifact; return False if another writer has changed them before."""
        while (there := (newest := self._newest()).part(part)) != files:
            if there != old and part != _CURRENT:
                return False
            others = {name: entry for name, entry in newest.files.items() if name not in there}
            head = Head(number=newest.number + 1, files={**others, **files})
            if self._create(f"heads/{head.number:08}.json", head.model_dump_json().encode()):
                break
        others = {name: entry for name, entry in self.head().files.items() if _part(name) != part}
        self._keep(Head(files={**others, **files}))
        return True

    def _upload(self, name: str, before: Entry | None, upload: str) -> Entry:
        """Upload a file unless it is unchanged; lines added meanwhile are left out."""
        path, crc = self.root / name, 0
        size = path.stat().st_size
        if before is not None and before[:2] == (size, checksum_of(path)):
            return before
        with path.open("rb") as file:
            for one in _objects(f"files/{upload}/{name}", size):
                data = file.read(min(_BLOCK, size - file.tell()))
                self._write(one, data)
                crc = zlib.crc32(data, crc)
        return size, f"{crc:08x}", upload

    def _files(self, part: str) -> dict[str, Path]:
        """Return the files of an artifact by name, without temporary ones."""
        place = self.root / part
        files = (path for path in (place, *place.rglob("*")) if path.is_file() and path.suffix != ".partial")
        return {path.relative_to(self.root).as_posix(): path for path in files}

    def _keep(self, head: Head) -> None:
        write_text(self._notes / "head.json", head.model_dump_json())

    def _newest(self) -> Head:
        heads = self._list("heads")
        return Head.model_validate_json(self._read(heads[-1])) if heads else Head()

    def _list(self, below: str) -> list[str]:
        """Return the names of the objects below a folder, sorted."""
        system, path = self._store
        system.invalidate_cache()
        names = (name.removeprefix(f"{path}/") for name in system.find(f"{path}/{below}"))
        return sorted(name for name in names if name.startswith(f"{below}/"))

    def _read(self, name: str, size: int = MAX_JSON) -> bytes:
        """Return an object, by a range: s3fs looks up the size of a whole one, possibly in an old listing."""
        system, path = self._store
        try:
            content: bytes = system.cat_file(f"{path}/{name}", start=0, end=size)
        except FileNotFoundError as error:
            text = f"{self.url}: {name} is gone: another machine has replaced or removed it"
            raise DataError(text, hint="run the same command again") from error
        return content

    def _write(self, name: str, content: bytes, **mode: str) -> None:
        system, path = self._store
        system.pipe_file(f"{path}/{name}", content, **mode)

    def _create(self, name: str, content: bytes) -> bool:
        """Create an object; return False for another one of that name."""
        try:
            self._write(name, content, mode="create")
        except OSError:  # it exists, another writer creates it just now, or the answer to an earlier attempt was lost
            for wait in (0, 0.1, 0.3, 1, 3):
                time.sleep(wait)
                with suppress(DataError):
                    return self._read(name) == content
            raise
        return True

    def _remove(self, names: Iterable[str]) -> None:
        _parallel(lambda name: self._store[0].rm_file(f"{self._store[1]}/{name}"), names)


def _objects(name: str, size: int) -> list[str]:
    blocks = -(-size // _BLOCK)
    return [name] * blocks if blocks < 2 else [f"{name}/{block:05}" for block in range(blocks)]


def _parallel(call: Callable[[Any], Any], values: Iterable[Any]) -> list[Any]:
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(call, values))


def _new_upload(seconds: float | None = None) -> str:
    """Return a unique name that sorts by time."""
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime(seconds))}-{uuid.uuid4().hex[:12]}"
