"""Click logs in Criteo's shape to prepared data: recsys and NVTabular on the same rows, in turn, as whole processes.

usage: bench_criteo.py FOLDER [--rows 10e6] [--rounds 3] [--peer-rounds 1]

Makes the rows where FOLDER has none. 13 counts are filled, clipped, logged and normalised; 26 categories keep what comes
15 times in train and hash the rest to 1000 buckets. Both hold out a random fifth and shuffle.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from measure import Run, figures, keep, machine, run, spread

HERE = Path(__file__).resolve().parent
RECSYS = str(Path(sys.executable).with_name("recsys"))


def main() -> None:
    """Run us and the peer in turn and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", default="10e6")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer-rounds", type=int, default=1, help="rounds of NVTabular, which takes many minutes")
    parser.add_argument("--name", default="criteo", help="name of the file with the results")
    given = parser.parse_args()
    if not list(given.folder.glob("day-*.parquet")):
        run([sys.executable, str(HERE / "make_criteo_shape.py"), given.rows, str(given.folder)])
    config = HERE.parent / "configs" / "criteo.yaml"
    data = f"dataset.interactions={given.folder.resolve()}/day-*.parquet"
    ours: list[Run] = []
    theirs: list[Run] = []
    with tempfile.TemporaryDirectory(dir=given.folder) as scratch:
        workspace, out = Path(scratch) / "workspace", Path(scratch) / "nvtabular"
        for number in range(given.rounds):
            ours.append(run([RECSYS, "-q", "-w", str(workspace), "etl", str(config), data, "--force"]))
            if number < given.peer_rounds:
                shutil.rmtree(out, ignore_errors=True)
                theirs.append(run([sys.executable, str(HERE / "nvtabular_criteo.py"), str(given.folder), str(out)]))
                print(theirs[-1].output, flush=True)
    keep(given.name, _result(given.rows, ours, theirs))


def _result(rows: str, ours: list[Run], theirs: list[Run]) -> dict[str, object]:
    result: dict[str, object] = {"work": f"{rows} rows of 39 columns, parquet to prepared data; min / median / max"}
    result |= {name: figures(runs) for name, runs in (("recsys", ours), ("nvtabular", theirs)) if runs}
    if theirs:
        pairs = list(zip(ours, theirs, strict=False))
        result |= {
            "times_faster": spread([their.seconds / our.seconds for our, their in pairs]),
            "share_of_its_memory": spread([our.peak_gb / their.peak_gb for our, their in pairs]),
        }
    return result | {"machine": machine("polars", "pyarrow", "nvtabular", "pandas", "numpy")}


if __name__ == "__main__":
    main()
