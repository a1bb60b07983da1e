"""Byte streams of raw text files in every compression, and errors for wrong suffixes."""

from __future__ import annotations

import bz2
import gzip
import lzma
from pathlib import Path

import pyarrow as pa
import pytest

from recsys_cli.data.raw_files import COMPRESSIONS, compression, head, unpacked_name
from recsys_cli.errors import DataError
from tests.unit.data.wayward import written

TEXT = b"user,item\n" + b"".join(b"%d,%d\n" % (row, row % 7) for row in range(50_000))


def packed(codec: str, text: bytes = TEXT) -> bytes:
    """Compress, if possible by another implementation than the reader's."""
    if codec == "gzip":
        return gzip.compress(text)
    if codec == "bz2":
        return bz2.compress(text)
    if codec == "xz":
        return lzma.compress(text)
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(text)
    return sink.getvalue().to_pybytes()


every_suffix = pytest.mark.parametrize("suffix", COMPRESSIONS)


@every_suffix
def test_compressed_text_is_read_completely_also_from_archives_in_a_row(tmp_path: Path, suffix: str) -> None:
    file = written(tmp_path / f"r.csv{suffix}", packed(COMPRESSIONS[suffix]))
    assert head(file, 10 * len(TEXT)) == TEXT
    assert head(file, 1234) == TEXT[:1234]
    codec = COMPRESSIONS[suffix]
    file = written(tmp_path / f"r.CSV{suffix.upper()}", packed(codec, TEXT[:1000]) + packed(codec, TEXT[1000:]))
    assert head(file, 10 * len(TEXT)) == TEXT


@every_suffix
def test_truncated_archive_is_named(tmp_path: Path, suffix: str) -> None:
    whole = packed(COMPRESSIONS[suffix])
    file = written(tmp_path / f"r.csv{suffix}", whole[: len(whole) * 2 // 3])
    with pytest.raises(DataError, match=rf"r\.csv{suffix}: cannot be read to its end"):
        head(file, 10 * len(TEXT))


@every_suffix
def test_missing_compression_suffix_is_refused(tmp_path: Path, suffix: str) -> None:
    file = written(tmp_path / "r.csv", packed(COMPRESSIONS[suffix]))
    with pytest.raises(DataError, match=r"r\.csv is compressed with .*, but has no suffix") as found:
        head(file, 100)
    assert found.value.hint == f"rename it to r.csv{suffix}"


@every_suffix
def test_wrong_compression_suffix_is_refused(tmp_path: Path, suffix: str) -> None:
    file = written(tmp_path / f"r.csv{suffix}", TEXT)
    with pytest.raises(DataError, match=rf"is not compressed with {COMPRESSIONS[suffix]}, but has the suffix {suffix}"):
        head(file, 100)
    other = ".gz" if suffix != ".gz" else ".zst"
    file = written(tmp_path / f"r.csv{other}", packed(COMPRESSIONS[suffix]))
    with pytest.raises(DataError, match=f"is compressed with {COMPRESSIONS[suffix]}, but has the suffix {other}"):
        head(file, 100)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"PK\x03\x04...", "a zip archive"),
        (b"PAR1....", "a Parquet file"),
        ("a,b\n".encode("utf-16"), "text in UTF-16"),
    ],
)
def test_binary_files_are_refused(tmp_path: Path, content: bytes, what: str) -> None:
    with pytest.raises(DataError, match=f"r.csv is {what}"):
        head(written(tmp_path / "r.csv", content), 100)


def test_text_may_start_like_a_compressed_file(tmp_path: Path) -> None:
    assert head(written(tmp_path / "r.csv", b"BZh,a\n1,2\n"), 100) == b"BZh,a\n1,2\n"


def test_suffixes_determine_the_compression() -> None:
    found = [compression(name) for name in ("a.csv", "a.CSV.GZ", "a.gz.csv", "a.tsv.zst")]
    assert found == [None, "gzip", None, "zstd"]
    assert [unpacked_name(name) for name in ("a.csv", "a.csv.gz", "a.b.tsv.XZ")] == ["a.csv", "a.csv", "a.b.tsv"]
