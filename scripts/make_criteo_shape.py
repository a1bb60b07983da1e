"""Write parquet files in the shape of Criteo's click logs: a label, 13 counts with nulls, 26 columns of 8 hex characters.

usage: make_criteo_shape.py ROWS FOLDER

A million rows a file. The number of different values of each column is that of Criteo's Kaggle set; a few come often and
most rarely. Labels carry no signal: this is for speed and memory, not for quality.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

CARDINALITIES = (
    1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194, 27, 14992, 5461306, 10, 5652, 2173, 4,
    7046547, 18, 15, 286181, 105, 142572,
)  # fmt: skip
FILE_ROWS = 1_000_000
_HEX = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)


def texts(ids: np.ndarray) -> pa.Array:
    """Return each id as 8 hex characters that tell nothing of its order."""
    mixed = (ids.astype(np.uint64) * np.uint64(2654435761)).astype(np.uint32)  # odd, so different ids stay different
    digits = (mixed[:, None] >> np.arange(28, -4, -4, dtype=np.uint32)) & np.uint32(15)
    data = pa.py_buffer(_HEX[digits].tobytes())
    offsets = pa.py_buffer(np.arange(0, 8 * len(ids) + 8, 8, dtype=np.int32).tobytes())
    return pa.StringArray.from_buffers(len(ids), offsets, data)


def with_nulls(values: pa.Array, share: float, rng: np.random.Generator) -> pa.Array:
    """Return values of which some are null."""
    return pc.if_else(pa.array(rng.random(len(values)) >= share), values, pa.nulls(1, values.type)[0])


def rows(count: int, rng: np.random.Generator) -> pa.Table:
    """Return some rows."""
    columns: dict[str, pa.Array] = {"label": pa.array((rng.random(count) < 0.25).astype(np.int8))}
    for number in range(1, 14):
        counts = np.floor(np.exp(rng.normal(number / 3, 1.5, count))).astype(np.int64) - (number == 2)
        columns[f"I{number}"] = with_nulls(pa.array(counts), 0.03 * number, rng)
    for number, size in enumerate(CARDINALITIES, 1):
        ids = np.floor(size * rng.random(count) ** 4).astype(np.int64)
        columns[f"C{number}"] = with_nulls(texts(ids), 0.02 if number % 3 else 0.0, rng)
    return pa.table(columns)


def main() -> None:
    """Write the files."""
    total, folder = int(float(sys.argv[1])), Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    for number, start in enumerate(range(0, total, FILE_ROWS)):
        table = rows(min(FILE_ROWS, total - start), np.random.default_rng([0, number]))
        pq.write_table(table, folder / f"day-{number:03d}.parquet")


if __name__ == "__main__":
    main()
