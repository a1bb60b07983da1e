"""Write files in the layout of YooChoose: sessions of 4 to 20 clicks, lengths as in `synthetic-sessions`.

Items are as many as in YooChoose, a few frequent and most rare, and may repeat within a session. The order has no signal: this
is for speed and memory, not for quality.
"""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

ITEMS, FIRST_ITEM = 52_739, 214_507_224
START, DAYS = 1_396_310_400, 183
FILE_ROWS = 1_000_000
_CSV = pyarrow.csv.WriteOptions(include_header=False, quoting_style="none")


def clicks(rows: int, first_session: int, start: float, seconds: float, rng: np.random.Generator) -> pa.Table:
    """Return the clicks of consecutive sessions, which begin within some seconds."""
    lengths = np.minimum(3 + rng.geometric(0.3, rows // 4 + 1), 20)
    ends = np.cumsum(lengths)
    lengths = lengths[: np.searchsorted(ends, rows) + 1]
    session = np.repeat(np.arange(len(lengths)), lengths)[:rows]
    position = np.arange(len(session)) - np.repeat(np.cumsum(lengths) - lengths, lengths)[:rows]
    begins = start + np.sort(rng.random(len(lengths))) * seconds
    times = 1_000 * (begins[session] + 47 * position).astype(np.int64) + rng.integers(0, 1_000, len(session))
    item = FIRST_ITEM + (ITEMS * rng.random(len(session)) ** 3).astype(np.int64)
    category = pa.array(["0", "S", "7", "2089045122"]).take(pa.array(item % 4))
    texts = pc.strftime(pa.array(times, pa.timestamp("ms")), "%Y-%m-%dT%H:%M:%SZ")
    return pa.table({"session": session + first_session, "timestamp": texts, "item": item, "category": category})


def main() -> None:
    """Write yoochoose-clicks.dat, and two purchases."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=float, metavar="ROWS", help="number of clicks, such as 1e6")
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    given = parser.parse_args()
    total, folder = int(given.rows), given.folder
    folder.mkdir(parents=True, exist_ok=True)
    session = 1
    with (folder / "yoochoose-clicks.dat").open("wb") as file:
        for number, done in enumerate(range(0, total, FILE_ROWS)):
            rows, rng = min(FILE_ROWS, total - done), np.random.default_rng([0, number])
            span = DAYS * 86_400 / total
            table = clicks(rows, session, START + done * span, rows * span, rng)
            pyarrow.csv.write_csv(table, file, _CSV)
            session = int(table["session"][-1].as_py()) + 1
    buys = "1,2014-04-02T10:55:31.000Z,214507224,0,0\n2,2014-04-02T18:44:58.683Z,214507225,12462,1\n"
    (folder / "yoochoose-buys.dat").write_text(buys, encoding="utf-8")


if __name__ == "__main__":
    main()
