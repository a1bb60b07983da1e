from __future__ import annotations

import io
import random
import shutil
import stat
import zipfile
from collections import namedtuple
from pathlib import Path

import pytest

from recsys_cli.data.archive import unpack
from recsys_cli.errors import DataError
from recsys_cli.events import ignore
from tests.unit.data.wayward import Watcher, make_zip

MEMBERS = ("ratings.csv", "movies.csv")
RATINGS = b"userId,movieId,rating,timestamp\n" + b"".join(b"%d,%d,4.0,1\n" % (n, n * 7 % 31) for n in range(9_000))
MOVIES = b"movieId,title,genres\n1,One,Drama\n"
FILES = {"ml/ratings.csv": RATINGS, "ml/movies.csv": MOVIES}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "raw"
    folder.mkdir()
    return folder


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "ml.zip"


def archive_by(method: int) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as target:
        for name, content in FILES.items():
            target.writestr(name, content)
    return buffer.getvalue()


def encrypted() -> bytes:
    """An archive whose first member has the flag of encryption, 8 bytes into its entry of the central directory."""
    body = bytearray(make_zip(FILES))
    body[body.index(b"PK\x01\x02") + 8] |= 1
    return bytes(body)


@pytest.mark.parametrize(
    "names",
    [
        ("ml/ratings.csv", "ml/movies.csv"),
        ("ratings.csv", "movies.csv"),
        ("a/b/ratings.csv", "a/b/movies.csv"),
        ("ml\\ratings.csv", "ml\\movies.csv"),
        ("RATINGS/ratings.csv", "movies.csv"),
    ],
    ids=["top folder", "no top folder", "deep", "backslashes", "mixed"],
)
def test_unpack_finds_the_members(archive: Path, folder: Path, names: tuple[str, str], watcher: Watcher) -> None:
    archive.write_bytes(make_zip(dict(zip(names, (RATINGS, MOVIES), strict=True)) | {"ml/links.csv": b"not needed"}))
    unpack(archive, MEMBERS, folder, emit=watcher)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == dict(
        zip(MEMBERS, (RATINGS, MOVIES), strict=True)
    )
    last = watcher.progress("unpack ml.zip")[-1]
    assert (last.done, last.total) == (len(RATINGS) + len(MOVIES),) * 2


def test_unpack_prefers_the_member_at_the_lowest_depth_and_ignores_macos_metadata(archive: Path, folder: Path) -> None:
    noise = {"__MACOSX/ratings.csv": b"fork", "__MACOSX/ml/._ratings.csv": b"fork", ".hidden/ratings.csv": b"x"}
    archive.write_bytes(make_zip({**noise, "ml/old/ratings.csv": b"old", **FILES, "ml/.DS_Store": b"x"}))
    unpack(archive, MEMBERS, folder, emit=ignore)
    assert (folder / "ratings.csv").read_bytes() == RATINGS


def test_unpack_uses_no_path_of_the_archive_and_no_link(archive: Path, folder: Path) -> None:
    evil = ("/etc/cron.d/movies.csv", "C:\\evil\\a\\b\\c\\movies.csv", "ml/../../../evil/movies.csv")
    buffer = io.BytesIO(make_zip(FILES | dict.fromkeys(evil, b"x")))
    with zipfile.ZipFile(buffer, "a") as target:
        link = zipfile.ZipInfo("movies.csv")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        target.writestr(link, b"/etc/passwd")
    archive.write_bytes(buffer.getvalue())
    unpack(archive, MEMBERS, folder, emit=ignore)
    assert (folder / "movies.csv").read_bytes() == MOVIES
    assert sorted(path.name for path in folder.parent.rglob("*")) == ["ml.zip", "movies.csv", "ratings.csv", "raw"]


@pytest.mark.parametrize("position", [60, 400])
def test_unpack_names_damage_inside_a_member(archive: Path, folder: Path, position: int) -> None:
    body = bytearray(make_zip(FILES))
    for offset in range(position, position + 40):
        body[offset] ^= 0xFF
    archive.write_bytes(bytes(body))
    with pytest.raises(DataError, match="damaged"):
        unpack(archive, MEMBERS, folder, emit=ignore)
    assert "ratings.csv" not in {path.name for path in folder.iterdir()}


WRONG_CHECKSUM = archive_by(zipfile.ZIP_STORED).replace(b"1,7,4.0,1\n", b"1,7,5.0,1\n", 1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (encrypted(), "'ml/ratings.csv' .* is encrypted"),
        *((make_zip(FILES)[:-cut], r"ml\.zip is damaged") for cut in (1, len(make_zip(FILES)) // 2)),
        (WRONG_CHECKSUM, r"damaged.*CRC"),
        (make_zip({"ml/tags.csv": b"", "ml/movies.csv": MOVIES}), r"lacks ratings\.csv; it has movies\.csv, tags\.csv"),
        (make_zip({"ml/tags.csv": b"x"}), r"lacks ratings\.csv, movies\.csv; it has tags\.csv"),
        (
            make_zip({**FILES, "other/ratings.csv": b"x"}),
            r"two files ratings\.csv: 'ml/ratings\.csv' and 'other/ratings\.csv'",
        ),
        (make_zip({**FILES, "ml/movies.csv": b""}), r"movies\.csv in it is empty"),
        (
            make_zip({**FILES, "ml/ratings.csv": bytes(80 << 20)}),
            r"bytes would unpack to 83,886,113, more than 200 times as many; nothing",
        ),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer"),
        (b"<html><body>Sign in", "HTML page"),
        (b"", "is empty"),
        (b"seven seas", r"of another format \(File is not a zip file\)"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_unpack_refuses_the_whole_archive(archive: Path, folder: Path, content: bytes, message: str) -> None:
    archive.write_bytes(content)
    with pytest.raises(DataError, match=message):
        unpack(archive, MEMBERS, folder, emit=ignore)
    assert not list(folder.iterdir())
    assert sorted(path.name for path in folder.parent.iterdir()) == ["ml.zip", "raw"]


def test_unpack_refuses_members_larger_than_the_disk(
    archive: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.write_bytes(make_zip(FILES))
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**6, 10**6 - 999, 999))
    with pytest.raises(DataError, match=r"unpacking takes [\d,]+ bytes, and the disk of .*raw has 999 left"):
        unpack(archive, MEMBERS, folder, emit=ignore)
    assert not list(folder.iterdir())


def test_unpack_writes_no_more_than_announced(archive: Path, folder: Path) -> None:
    body = bytearray(make_zip({**FILES, "ml/movies.csv": bytes(8 << 20)}))
    size = (8 << 20).to_bytes(4, "little")
    archive.write_bytes(body.replace(size, (100).to_bytes(4, "little")))
    written: list[int] = []
    with pytest.raises(DataError, match="damaged"):
        unpack(archive, MEMBERS, folder, emit=lambda event: written.append(event.done))  # type: ignore[union-attr]
    assert max(written) <= len(RATINGS) + 100
    assert "movies.csv" not in {path.name for path in folder.iterdir()}


def test_unpack_names_every_damage(archive: Path, folder: Path) -> None:
    bodies = [archive_by(method) for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2)]
    refused = 0
    for seed in range(400):
        draw = random.Random(seed)
        body = bytearray(draw.choice(bodies))
        entries = body.index(b"PK\x01\x02")
        for _ in range(draw.randint(1, 4)):
            body[draw.choice([draw.randrange(entries, len(body)), draw.randrange(60)])] = draw.choice([0, 1, 127, 255])
        archive.write_bytes(body)
        try:
            unpack(archive, MEMBERS, folder, emit=ignore)
        except DataError:
            refused += 1
    assert refused > 200
