"""Memory of reading: within the budget for inputs of any size."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsys_cli.etl.reading.reader import chunk_bytes

MEGABYTES = 160
BUDGET, THREADS = 256, 4
PROGRAM = """
    import re, sys
    from pathlib import Path
    from recsys_cli.data import open_source
    from recsys_cli.etl.reading.reader import Reader, chunk_bytes

    def peak():  # of this program alone: that of getrusage begins with what the process was before
        return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) // 1024

    def read(name):
        (table,) = open_source("files", {"interactions": name}).tables(Path())
        size = chunk_bytes(int(sys.argv[2]), int(sys.argv[3]))
        return sum(batch.num_rows for batch in Reader(table, threads=int(sys.argv[3]), chunk_bytes=size).batches())

    read("small-" + sys.argv[1])
    before = peak()
    print(read(sys.argv[1]), peak() - before)
"""


def test_chunks_are_a_share_of_the_budget() -> None:
    assert [chunk_bytes(memory, 2) >> 20 for memory in (256, 1024, 16_384)] == [10, 32, 32]
    assert 66 * chunk_bytes(1024, 64) <= (1024 << 20) / 6
    assert chunk_bytes(256, 512) == 1 << 20


def write_text(name: str, num_bytes: int) -> int:
    block = b"".join(b"%d,%d,%d.5\n" % (row % 9973, row, row % 5) for row in range(60_000))
    times = max(1, num_bytes // len(block))
    with pa.CompressedOutputStream(name, "zstd") if name.endswith(".zst") else pa.OSFile(name, "wb") as file:
        file.write(b"user,item,rating\n")
        for _ in range(times):
            file.write(block)
    return times * 60_000


def write_parquet(name: str, num_bytes: int) -> int:
    """Write a table of 40 columns in one row group."""
    rows = num_bytes // (40 * 8)
    wide = pa.table({f"c{number}": np.arange(rows) * (number + 1) for number in range(40)})
    pq.write_table(wide, name, row_group_size=rows, use_dictionary=False, compression="none")
    return rows


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of a process is read from /proc")
@pytest.mark.parametrize("name", ["large.csv", "large.csv.zst", "large.parquet"])
def test_reading_takes_no_more_than_its_budget(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write = write_parquet if name.endswith(".parquet") else write_text
    write(f"small-{name}", 1 << 16)
    rows = write(name, MEGABYTES << 20)

    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), name, str(BUDGET), str(THREADS)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip

    read, grown = map(int, done.stdout.split())
    assert read == rows
    assert grown < BUDGET
