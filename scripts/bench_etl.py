"""Raw CSV to prepared data: recsys, a plain Polars script and NVTabular on the same rows, in turn, as whole processes.

usage: bench_etl.py FOLDER [--peer ../shared/baselines/nvtabular_etl.py] [--rounds 3] [--set etl.layout=flat …]

FOLDER holds ratings.csv and movies.csv in MovieLens's layout (`recsys download synthetic-25m` makes such files). Ours is
`recsys etl configs/ml25m.yaml`, config and start-up included; the dataset is zipped in first, which is not timed.
polars_etl.py makes the same rows in the same order, which is checked. The floor is reading the bytes of the CSV once and
writing the prepared bytes once, at the speeds measured here.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import pyarrow.parquet as pq
from measure import Run, figures, keep, machine, run, spread

HERE = Path(__file__).resolve().parent
RECSYS = shutil.which("recsys", path=str(Path(sys.executable).parent)) or "recsys"


def main() -> None:
    """Run us and the peer in turn and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--peer", type=Path, default=HERE.parents[1] / "shared" / "baselines" / "nvtabular_etl.py")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer-rounds", type=int, default=None, help="fewer rounds of the peer, which takes minutes")
    parser.add_argument("--set", nargs="*", default=[], help="overrides for recsys, such as etl.layout=flat")
    parser.add_argument("--keep", action="store_true", help="keep what was prepared, in FOLDER/workspace")
    parser.add_argument("--name", default="etl", help="name of the file with the results")
    given = parser.parse_args()

    with tempfile.TemporaryDirectory(dir=given.folder) as scratch:
        workspace = Path(scratch) / "workspace"
        _import_dataset(given.folder, workspace)
        config = HERE.parent / "configs" / "ml25m.yaml"
        etl = [RECSYS, "-q", "-w", str(workspace), "etl", str(config), "--force", *given.set]
        runs: dict[str, list[Run]] = {"recsys": [], "polars_script": [], "nvtabular": []}
        for number in range(given.rounds):
            runs["recsys"].append(run(etl))
            (data,) = (workspace / "data").iterdir()
            plain = Path(scratch) / "plain"
            shutil.rmtree(plain, ignore_errors=True)
            shards = str(len(list((data / "train").iterdir())))
            runs["polars_script"].append(
                run([sys.executable, str(HERE / "polars_etl.py"), str(given.folder), str(plain), shards])
            )
            _check_same(data, plain)
            if given.peer.is_file() and number < (given.peer_rounds or given.rounds):
                runs["nvtabular"].append(run([sys.executable, str(given.peer), str(given.folder.resolve())]))
        prepared = sum(path.stat().st_size for path in (workspace / "data").rglob("*") if path.is_file())
        floor = _floor(given.folder / "ratings.csv", prepared, Path(scratch))
        if given.keep:
            shutil.rmtree(given.folder / "workspace", ignore_errors=True)
            workspace.rename(given.folder / "workspace")
    keep(given.name, _result(runs, floor, given.set))


def _import_dataset(folder: Path, workspace: Path) -> None:
    archive = workspace.parent / "ml-25m.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as made:
        for name in ("ratings.csv", "movies.csv"):
            made.write(folder / name, f"ml-25m/{name}")
    run([RECSYS, "-q", "-w", str(workspace), "download", "movielens-25m", "--from-file", str(archive)])
    archive.unlink()


def _floor(source: Path, prepared: int, scratch: Path) -> dict[str, float]:
    """Time reading the raw bytes once and writing the prepared bytes once."""
    started = time.perf_counter()
    with source.open("rb") as file:
        while file.read(1 << 24):
            pass
    read = time.perf_counter() - started
    started = time.perf_counter()
    block = bytes(1 << 24)
    with (scratch / "floor").open("wb") as file:
        for _ in range(prepared // len(block)):
            file.write(block)
    return {"read_s": round(read, 3), "write_s": round(time.perf_counter() - started, 3)}


def _check_same(ours: Path, plain: Path) -> None:
    """Stop where the plain script did not make the same rows in the same order: it would be another work."""
    for split in ("train", "valid"):
        tables = [pq.read_table(sorted((folder / split).glob("*.parquet"))[0]) for folder in (ours, plain)]
        # Columns beside the schema's are ours alone.
        columns = [name for name in tables[0].column_names if not name.startswith("\x01")]
        first = tables[0].select(columns).slice(0, min(table.num_rows for table in tables))
        other = tables[1].select(columns).slice(0, first.num_rows).cast(first.schema)
        if not first.combine_chunks().equals(other.combine_chunks()):
            raise SystemExit(f"{split}: the plain script made other rows")


def _result(runs: dict[str, list[Run]], floor: dict[str, float], overrides: list[str]) -> dict[str, object]:
    ours = runs["recsys"]
    result: dict[str, object] = {
        "work": "raw CSV to prepared data, whole process; min / median / max",
        "overrides": overrides,
        "recsys": figures(ours),
        "floor": floor,
        "times_the_floor": round(statistics.median(r.seconds for r in ours) / max(1e-9, sum(floor.values())), 1),
    }
    for peer in ("polars_script", "nvtabular"):
        if runs[peer]:
            pairs = list(zip(ours, runs[peer], strict=False))
            result[peer] = figures(runs[peer]) | {
                "recsys_is_times_faster": spread([their.seconds / our.seconds for our, their in pairs]),
                "recsys_takes_this_share_of_its_memory": spread([our.peak_gb / their.peak_gb for our, their in pairs]),
            }
    return result | {"machine": machine("polars", "pyarrow", "nvtabular", "pandas", "numpy")}


if __name__ == "__main__":
    main()
