"""Preparation beyond one machine: rows on threads, workers of one core each, and the cost of a task to its driver.

usage: bench_scale.py FOLDER [--millions 25 100 400] [--rounds 3] [--clusters local ray] [--skip rows|workers|clicks|tasks …]

FOLDER holds ratings.csv and movies.csv (`recsys download synthetic-25m` makes them). Larger tables are several links to the same
file: as many users and items, more rows. Workers of Dask are bound to a core each; the driver has both. Each round runs one and two
workers in turn. Phases are by the events of the command, so start and end of a cluster are apart from them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv as pa_csv
from measure import RESULTS, Run, figures, keep, machine, run

HERE = Path(__file__).resolve().parent
ROWS = 25_000_095
CLICKS = 4_000_000
_DRIVER = """
import json, os, sys, time
from pathlib import Path
import polars
from recsys_cli.config.load import load
from recsys_cli.events import Progress
from recsys_cli.stages.etl import etl
from recsys_cli.workspace import Workspace

if __name__ == "__main__":
    polars.thread_pool_size()
    os.environ["POLARS_MAX_THREADS"] = "1"  # of workers, which are on one core
    ends = {}

    def note(event):
        if isinstance(event, Progress):
            ends[event.task] = time.perf_counter()

    config = load(Path(sys.argv[1]), sys.argv[3:])
    manifest = etl(config, Workspace(sys.argv[2]), force=True, emit=note).artifact.manifest
    kept = {name: manifest[name] for name in ("seconds", "rows", "peak_memory")}
    print(json.dumps(kept | {"ends": ends}))
"""
_PIN = """
import os


def dask_setup(worker):
    core = sorted(os.sched_getaffinity(0))[worker.name % 2]
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), {core})
"""
_TASKS = """
import json, sys, time
from pathlib import Path
from recsys_cli.executors.executor import open_executor

if __name__ == "__main__":
    cluster, workers, scratch = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    begun = time.perf_counter()
    with open_executor(cluster, scratch, workers=workers) as executor:
        ready = time.perf_counter()
        list(executor.map(abs, range(200)))
        start = time.perf_counter()
        list(executor.map(abs, range(2000)))
        done = time.perf_counter()
    print(json.dumps({"start": ready - begun, "end": time.perf_counter() - done, "task_ms": (done - start) / 2}))
"""


def main() -> None:
    """Measure and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--millions", type=int, nargs="*", default=[25, 100, 400])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clusters", nargs="*", default=["local", "ray"])
    parser.add_argument(
        "--skip", nargs="*", default=[], choices=["rows", "workers", "clicks", "tasks"], help="figures that stay"
    )
    parser.add_argument("--name", default="scale", help="name of the file with the results")
    given = parser.parse_args()

    known = RESULTS / f"{given.name}.json"
    result: dict[str, Any] = json.loads(known.read_text()) if given.skip and known.exists() else {}
    result |= {"machine": machine("polars", "pyarrow", "distributed")}
    with tempfile.TemporaryDirectory(dir=given.folder) as scratch:
        place = Path(scratch)
        if "rows" not in given.skip:
            result["rows"] = [_rows(given.folder, place, millions, given.rounds) for millions in given.millions]
        if "workers" not in given.skip:
            config = _config(given.folder, place, 25)
            result["workers"] = {name: _in_turn(config, place, name, given.rounds) for name in given.clusters}
        if "clicks" not in given.skip:
            result["clicks"] = _clicks(given.folder, place, given.clusters[0], given.rounds)
        if "tasks" not in given.skip:
            result["tasks"] = {name: _tasks(place, name, given.rounds) for name in given.clusters}
    keep(given.name, result)


def _config(folder: Path, scratch: Path, millions: int) -> Path:
    """Write the config of the recipe for a number of million rows."""
    links = scratch / f"rows-{millions}"
    links.mkdir(exist_ok=True)
    for number in range(max(1, round(millions * 1e6 / ROWS))):
        (links / f"part-{number:03d}.csv").unlink(missing_ok=True)
        (links / f"part-{number:03d}.csv").symlink_to((folder / "ratings.csv").resolve())
    movies = {"files": str((folder / "movies.csv").resolve()), "lists": {"genres": "|"}}
    dataset = {"name": "files", "interactions": str(links / "*.csv"), "tables": {"movies": movies}}
    recipe = (HERE.parent / "configs" / "ml25m.yaml").read_text()
    path = scratch / f"rows-{millions}.yaml"
    path.write_text(recipe.replace("dataset:\n  name: movielens-25m\n", f"dataset: {json.dumps(dataset)}\n"))
    return path


def _phases(found: dict[str, Any]) -> dict[str, float]:
    """Return the seconds of each phase: a phase of tasks lasts from the end of the one before to its last event."""
    ends, seconds = found["ends"], found["seconds"]
    dealt = ends["assign to shards"] - ends["read interactions"]
    return {
        "read interactions": seconds["read and split"] - dealt, "assign to shards": dealt, "fit": seconds["fit"],
        "transform": seconds["transform and write"], "report": seconds["cold values"] + seconds["report"],
    }  # fmt: skip


def _driver(config: Path, scratch: Path, *overrides: str) -> tuple[Run, dict[str, Any]]:
    script = scratch / "driver.py"
    script.write_text(_DRIVER)
    done = run([sys.executable, str(script), str(config), str(scratch / "workspace"), *overrides])
    return done, json.loads(done.output.splitlines()[-1])


def _rows(folder: Path, scratch: Path, millions: int, rounds: int) -> dict[str, Any]:
    config = _config(folder, scratch, millions)
    found = [_driver(config, scratch) for _ in range(rounds if millions < 200 else 1)]
    rows = sum(found[0][1]["rows"].values())
    rates = [rows / 1e6 / one.seconds for one, _ in found]
    return {"rows": rows, **figures([one for one, _ in found]), "million_rows_per_second": round(median(rates), 3)}


def _in_turn(config: Path, scratch: Path, cluster: str, rounds: int) -> dict[str, Any]:
    phases: dict[int, list[dict[str, float]]] = {1: [], 2: []}
    peaks: list[float] = []
    for _ in range(rounds):
        for workers in (1, 2):
            own, peak = _on_cores(config, scratch, cluster, workers)
            phases[workers].append(own)
            peaks.append(peak)
    ratios = {name: round(median(p[name] for p in phases[1]) / median(p[name] for p in phases[2]), 2) for name in own}
    return {
        "one_worker": {name: round(median(p[name] for p in phases[1]), 2) for name in own},
        "two_workers": {name: round(median(p[name] for p in phases[2]), 2) for name in own},
        "ratio": ratios,
        "ratios_of_all": [round(one["all"] / two["all"], 2) for one, two in zip(phases[1], phases[2], strict=True)],
        "driver_peak_gb": [round(peak, 3) for peak in (min(peaks), median(peaks), max(peaks))],
    }


def _on_cores(config: Path, scratch: Path, cluster: str, workers: int) -> tuple[dict[str, float], float]:
    """Return the seconds of each phase and of all, and the peak memory of the driver in GB."""
    (scratch / "pin.py").write_text(_PIN)
    os.environ |= {"OMP_NUM_THREADS": "1", "DASK_DISTRIBUTED__WORKER__PRELOAD": json.dumps([str(scratch / "pin.py")])}
    _, found = _driver(config, scratch, f"etl.cluster={cluster}", f"etl.workers={workers}")
    seconds = sum(found["seconds"][phase] for phase in found["seconds"] if phase != "total")
    return _phases(found) | {"all": seconds}, found["peak_memory"] / 1e9


def _clicks(folder: Path, scratch: Path, cluster: str, rounds: int) -> dict[str, Any]:
    """Measure rows in the shape of Criteo's logs: 13 counts and 26 texts of 8 hexadecimal digits, 40 columns of text."""
    path = folder / f"clicks-{CLICKS}.tsv"
    if not path.exists():
        _write_clicks(path)
    measured = _in_turn(_click_config(path, scratch, 1), scratch, cluster, rounds)
    plans = (scratch / "workspace" / "data").glob("*/plan.json")
    (data,) = (one.parent for one in plans if "C26" in (one.parent / "schema.json").read_text())
    twice = [_on_cores(_click_config(path, scratch, 2), scratch, cluster, 1)[0] for _ in range(rounds)]
    prepared = sum(file.stat().st_size for file in data.rglob("*.parquet"))
    shards = len(list((data / "train").iterdir()))
    widths = [4 * 14, 26 * (8 + 4)]  # int32, and strings with their offsets
    return measured | {
        "twice": {name: round(median(one[name] for one in twice), 2) for name in twice[0]},
        "rows": CLICKS,
        "text_row_bytes": round(path.stat().st_size / CLICKS, 1),
        "part_bytes": 64 << 20,
        "shard_rows": round(0.9 * CLICKS / shards),
        "scratch_row_bytes": sum(widths),
        "prepared_row_bytes": round(prepared / CLICKS, 1),
    }


def _click_config(path: Path, scratch: Path, times: int) -> Path:
    """Write the config of the recipe for several times the rows of a file."""
    names = ["label", *(f"I{at}" for at in range(1, 14)), *(f"C{at}" for at in range(1, 27))]
    types = {name: "string" if name.startswith("C") else "int32" for name in names}
    links = scratch / f"clicks-{times}"
    links.mkdir(exist_ok=True)
    for number in range(times):
        (links / f"{number}.tsv").unlink(missing_ok=True)
        (links / f"{number}.tsv").symlink_to(path.resolve())
    table = {"files": str(links / "*.tsv"), "separator": "\t", "quote": None, "names": names, "types": types}
    recipe = (HERE.parent / "configs" / "criteo-1tb.yaml").read_text()
    start, end = recipe.index("dataset:"), recipe.index("split:")
    config = scratch / f"clicks-{times}.yaml"
    dataset = json.dumps({"name": "files", "interactions": table})
    config.write_text(f"{recipe[:start]}dataset: {dataset}\n\n{recipe[end:]}")
    return config


def _write_clicks(path: Path) -> None:
    """Write random click logs; frequencies of texts are Zipf's, with 3 to 3 million values a column."""
    random = np.random.default_rng(7)
    options = pa_csv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none")
    with path.with_suffix(".partial").open("wb") as file:
        for _ in range(CLICKS // 250_000):
            rows = 250_000
            columns = {"label": pa.array(random.integers(0, 2, rows), pa.int32())}
            for at in range(13):
                columns[f"I{at}"] = pa.array(random.poisson(5 * (at + 1), rows), mask=random.random(rows) < 0.1)
            for at in range(26):
                values = random.zipf(1.2, rows) % int(3 * 10 ** (6 * at / 25))
                texts = pl.Series(values.astype(np.uint64) * np.uint64(2654435761) % np.uint64(1 << 32))
                hexes = pl.select(pl.format("{}", texts)).to_series()  # decimal digits: as long, as distinct
                columns[f"C{at}"] = hexes.str.zfill(10).str.slice(2).to_arrow().cast(pa.string())
            pa_csv.write_csv(pa.table(columns), file, options)
    path.with_suffix(".partial").replace(path)


def _tasks(scratch: Path, cluster: str, rounds: int) -> dict[str, Any]:
    """Measure start and end of a cluster, and the time of a task that does nothing."""
    script = scratch / "tasks.py"
    script.write_text(_TASKS)
    found = []
    for number in range(rounds):
        folder = scratch / f"tasks-{cluster}-{number}"
        folder.mkdir()
        found.append(json.loads(run([sys.executable, str(script), cluster, "2", str(folder)]).output.splitlines()[-1]))
        time.sleep(1)
    return {
        name: [round(sorted(one[name] for one in found)[at], 3) for at in (0, rounds // 2, -1)] for name in found[0]
    }


if __name__ == "__main__":
    main()
