"""Cost of an epoch of sequence models whose whole training takes hours here: RecTools' and RecBole's from some batches, ours whole.

usage: bench_peer_epochs.py TOYS --folder FOLDER --python PYTHON [--only "rectools sasrec toys" ...] [--batches 4]

TOYS is Toys_and_Games.txt of S3-Rec; FOLDER has ml-latest-small as bench_sequence_peers.py left it, PYTHON is that of the peers.
A peer's epoch is the median of its batches but the first, times their number: processor seconds of one thread. RecBole's batches
have 1,024 rows instead of 2,048, for less than 4 GB of memory. Ours is the second of two epochs, with its validation. Figures
that FOLDER has are not measured again; all go to scripts/results/peers_epochs.json.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from bench_peers import THREADS
from bench_sequence_peers import ALLOCATOR, PROGRAMS
from measure import keep, machine, run
from peers.ours import RECSYS

NAME = "peers_epochs"
WORK = "processor seconds of an epoch, one thread, default settings; valid ndcg@10 of ours: all users, after each epoch"
CONFIG = Path(__file__).resolve().parents[1] / "configs" / "amazon-5core-toys.yaml"
ROWS = (
    "recbole sasrec small", "recbole gru4rec small", "recbole bert4rec small",
    "rectools sasrec toys", "ours sasrec toys",
)  # fmt: skip


def main() -> None:
    """Measure what is not there and keep all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("toys", type=Path)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--python", type=Path, required=True)
    parser.add_argument("--only", nargs="*", choices=ROWS, default=ROWS)
    parser.add_argument("--batches", type=int, default=4)
    given = parser.parse_args()
    os.environ.update(
        dict.fromkeys(THREADS, "1"), CUDA_VISIBLE_DEVICES="", PYTHONPATH=str(PROGRAMS.parent), **ALLOCATOR
    )
    folder = given.folder.absolute()
    if not (folder / "toys").is_dir():
        write_toys(given.toys, folder / "toys")
    for row in given.only:
        peer, model, data = row.split()
        out = cost_file(folder, row)
        if out.is_file():
            continue
        if peer == "ours":
            found = _ours(model, given.toys.absolute(), folder / "toys")
        else:
            job = out.with_suffix(".job.json")
            job.write_text(
                json.dumps(_job(peer, model, folder / "toys" if data == "toys" else folder, out)), encoding="utf-8"
            )
            program = str(PROGRAMS / "batch_cost.py")
            done = run([str(given.python.absolute()), program, peer, str(job), str(given.batches)], cwd=folder)
            found = json.loads(done.output.splitlines()[-1])
        out.write_text(json.dumps(found), encoding="utf-8")
    rows = {row: json.loads(cost_file(folder, row).read_text()) for row in ROWS if cost_file(folder, row).is_file()}
    keep(NAME, {"work": WORK, "rows": rows, "machine": machine("torch")})


def cost_file(folder: Path, row: str) -> Path:
    """Return where a row's figures are."""
    return folder / f"{row.replace(' ', '-')}.cost.json"


def write_toys(text: Path, folder: Path) -> None:
    """Write the lines `user item item …` of S3-Rec as leave-last-out splits, as the peers read them."""
    parts: dict[str, list[tuple[int, int, float, int]]] = {"train": [], "valid": [], "test": []}
    for line in text.read_text(encoding="utf-8").splitlines():
        user, *items = map(int, line.split())
        rows = [(user, item, 1.0, place) for place, item in enumerate(items)]
        parts["train"] += rows[:-2]
        parts["valid"].append(rows[-2])
        parts["test"].append(rows[-1])
    (folder / "splits" / "loo").mkdir(parents=True)
    columns = ("userId", "movieId", "rating", "timestamp")
    for name, rows in parts.items():
        table = pa.table(dict(zip(columns, map(list, zip(*rows, strict=True)), strict=True)))
        pq.write_table(table, folder / "splits" / "loo" / f"{name}.parquet")
    (folder / "movies.csv").write_text("movieId,genres\n", encoding="utf-8")  # no model here reads them


def _job(peer: str, model: str, data: Path, out: Path) -> dict[str, Any]:
    files = {name: str(data / "splits" / "loo" / f"{name}.parquet") for name in ("train", "valid", "test")}
    items = str(next(data.glob("**/movies.csv")))
    options = {"train_batch_size": 1_024} if peer == "recbole" else {}
    return {**files, "items": items, "model": model, "options": options, "seed": 0, "threads": 1, "out": str(out)}


def _ours(model: str, toys: Path, folder: Path) -> dict[str, Any]:
    """Train two epochs; return the seconds of the second, and the quality after both."""
    workspace, out = folder / "ws", folder / f"ours-{model}.npz"
    if not workspace.is_dir():
        run([RECSYS, "-q", "-w", str(workspace), "download", "amazon-5core-toys", "--from-file", str(toys)])
        run([RECSYS, "-q", "-w", str(workspace), "etl", str(CONFIG)])
    job = out.with_suffix(".job.json")
    asked = {"config": CONFIG, "workspace": workspace, "valid": folder / "splits" / "loo" / "valid.parquet", "out": out}
    paths = {name: str(path) for name, path in asked.items()}
    job.write_text(json.dumps({**paths, "model": model, "seed": 42, "overrides": ["train.epochs=2"]}), encoding="utf-8")
    done = run([sys.executable, str(PROGRAMS / "run_ours.py"), str(job)])
    points = json.loads(out.with_suffix(".json").read_text(encoding="utf-8"))["curve"]["points"]
    of_epoch = round(points[1][0] - points[0][0], 1)
    return {"model": model, "cpu_seconds of an epoch": of_epoch, "points": points, "peak_gb": round(done.peak_gb, 2)}


if __name__ == "__main__":
    main()
