"""Rows per second of the loader and of what one would use instead, in turn, each in a process of its own, on the same rows.

python scripts/bench_loader.py workspace/data/<key> --merlin DIR [--peer ../shared/baselines] [--rounds 3]

DIR is what the peer's nvtabular_etl.py wrote (it holds nvt_train/*.parquet); without it the peer is left out. Needs the
nvtabular extra for the peer. The result goes to scripts/results/loader.json: rows per second, peak memory, and round by
round how many times faster our loader is than each of the others, resident and streaming. The floor is what copying a batch
once costs at the measured memory rate. Rows that would fit into the streaming budget are streamed several times over, as one
split of so many more files.
"""

from __future__ import annotations

import argparse
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measure import keep, machine, run, spread

if TYPE_CHECKING:
    from recsys_cli.workspace import PreparedData

BATCH = 32_768
OURS = ("resident", "streaming")
SECONDS = 20.0
"""How long one program is measured at most; all are rates in a steady state, so the slow ones need not finish an epoch."""


def measure(batches: Iterable[object], rows_of: Callable[[Any], int], *, seconds: float = SECONDS) -> float:
    """Consume batches for a while; rows per second from the first batch on, which is not counted."""
    iterator = iter(batches)
    next(iterator)
    start, rows = time.perf_counter(), 0
    for batch in iterator:
        rows += rows_of(batch)
        if time.perf_counter() - start > seconds:
            break
    return rows / (time.perf_counter() - start)


def run_ours(folder: Path, memory: int) -> float:
    """The second epoch of our loader, with everything the schema has."""
    from recsys_cli.loader import Loader
    from recsys_cli.workspace import PreparedData

    loader = Loader(PreparedData(folder), "train", batch_size=BATCH, shuffle=True, memory=memory)
    print(f"resident={loader.resident} rows={loader.num_rows}")
    next(iter(loader))
    loader.set_epoch(1)
    return measure(loader, lambda batch: batch.num_rows)


def run_streaming(folder: Path, memory: int) -> float:
    """The same from disk: as many copies of the files as do not fit into the memory."""
    from recsys_cli.loader.records import footprint
    from recsys_cli.workspace import PreparedData

    data = PreparedData(folder)
    times = (memory << 20) // footprint(data, "train") + 1
    with tempfile.TemporaryDirectory() as scratch:
        return run_ours(repeated(data, times, Path(scratch) / "data").folder, memory)


def repeated(data: PreparedData, times: int, folder: Path) -> PreparedData:
    """Give the train split several times over, by links to its files."""
    from recsys_cli.workspace import PreparedData, write_manifest

    (folder / "train").mkdir(parents=True)
    for name in ("schema.json", "tables"):
        (folder / name).symlink_to((data.folder / name).resolve())
    for number in range(times):
        for path in data.shards("train"):
            (folder / "train" / f"{number:03d}-{path.name}").symlink_to(path.resolve())
    write_manifest(folder, "PreparedData", {"key": data.key, "rows": {"train": times * data.rows("train")}})
    return PreparedData(folder)


def run_torch(folder: Path, workers: int) -> float:
    """Torch's DataLoader over a TensorDataset of the single-valued columns: it has no way to hold genres."""
    import numpy as np
    import pyarrow.parquet as pq
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    from recsys_cli.workspace import PreparedData

    data = PreparedData(folder)
    columns = [c for c in (*data.schema.features, *data.schema.labels) if c.table is None and not c.ragged]
    names = [column.name for column in columns]
    content = pq.read_table([str(path) for path in data.shards("train")], columns=names)
    tensors = [torch.from_numpy(np.array(content[name].to_numpy())) for name in names]
    loader = DataLoader(TensorDataset(*tensors), batch_size=BATCH, shuffle=True, num_workers=workers)
    return measure(loader, lambda batch: len(batch[0]))


def run_peer(program: Path, folder: Path) -> float:
    """Merlin's loader, by its own program."""
    done = subprocess.run(
        [sys.executable, str(program / "merlin_loader.py"), str(folder), "100"],
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.search(r"([\d.]+) M rows/s", done.stdout)
    if found is None:
        raise SystemExit(f"{program}/merlin_loader.py failed:\n{done.stdout}{done.stderr}")
    return float(found[1]) * 1e6


def run_floor(folder: Path) -> float:
    """Rows per second if all that a batch takes were one copy of its bytes from memory."""
    import numpy as np

    from recsys_cli.batch import Ragged
    from recsys_cli.loader import Loader
    from recsys_cli.workspace import PreparedData

    batch = next(iter(Loader(PreparedData(folder), "train", batch_size=BATCH, shuffle=True)))
    num_bytes = 0
    for feature in (*batch.features.values(), *batch.labels.values()):
        num_bytes += feature.values.nbytes + feature.offsets.nbytes if isinstance(feature, Ragged) else feature.nbytes
    source = np.ones(256 << 20, np.uint8)
    target = np.empty_like(source)
    times = []
    for _ in range(8):
        start = time.perf_counter()
        np.copyto(target, source)
        times.append(time.perf_counter() - start)
    rate = source.nbytes / statistics.median(times[1:])
    print(f"{num_bytes / batch.num_rows:.1f} bytes a row, memory copied at {rate / 1e9:.1f} GB/s")
    return rate / (num_bytes / batch.num_rows)


def child(arguments: argparse.Namespace) -> None:
    """Run one program in this process and print its rate and peak memory."""
    name, folder = arguments.only, arguments.folder
    if name == "peer":
        rate = run_peer(arguments.peer, arguments.merlin)
    elif name == "floor":
        rate = run_floor(folder)
    elif name.startswith("torch"):
        rate = run_torch(folder, int(name[-1]))
    elif name == "streaming":
        rate = run_streaming(folder, arguments.stream_memory)
    else:
        rate = run_ours(folder, arguments.memory)
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print(f"RESULT {rate} {peak}")


def measured(name: str) -> dict[str, float]:
    """Run one program in a process of its own."""
    done = run([sys.executable, __file__, *sys.argv[1:], "--only", name])
    *said, result = done.output.splitlines()
    for line in said:
        print(f"  {name}: {line}", flush=True)
    _, rate, peak = result.split()
    return {"million_rows_per_second": round(float(rate) / 1e6, 3), "peak_gb": round(float(peak) * 1024 / 1e9, 2)}


def summary(results: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Say for each program what its rounds gave, and for ours how many times faster it was in the same round."""
    rates = {name: [one["million_rows_per_second"] for one in found] for name, found in results.items()}
    told: dict[str, Any] = {
        name: {
            "million_rows_per_second (min / median / max)": spread(rates[name], 3),
            "peak_gb": max(one["peak_gb"] for one in found),
        }
        for name, found in results.items()
    }
    for name in OURS:
        told[name]["times as fast (min / median / max)"] = {
            other: spread([ours / theirs for ours, theirs in zip(rates[name], rates[other], strict=True)], 3)
            for other in rates
            if other not in OURS
        }
    return told


def main() -> None:
    """Run every program in turn, several rounds, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="prepared data: workspace/data/<key>")
    parser.add_argument("--merlin", type=Path, help="folder with the peer's nvt_train/*.parquet")
    parser.add_argument("--peer", type=Path, default=Path("../shared/baselines"), help="folder with the peer's program")
    parser.add_argument("--memory", type=int, default=4_096, help="MiB for the resident loader")
    parser.add_argument("--stream-memory", type=int, default=512, help="MiB for the streaming loader")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.only:
        child(arguments)
        return
    names = [*OURS, "torch-workers-0", "torch-workers-2", *(["peer"] if arguments.merlin else []), "floor"]
    where = machine("torch", "numpy", "pyarrow")
    results: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for _ in range(arguments.rounds):
        for name in names:
            results[name].append(measured(name))
    keep("loader", {"machine": where, "batch_size": BATCH, "rounds": arguments.rounds, "programs": summary(results)})


if __name__ == "__main__":
    main()
