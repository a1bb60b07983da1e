"""A preparation of a terabyte on 1 to 256 workers, by measured task times and a stated network: its time, and what limits it.

usage: simulate_cluster.py [--scale scripts/results/scale.json] [--terabytes 1.1] [--cores 16]

An event simulation, no measurement: tasks start as workers are free, in the order and with the window of `executors.cluster`; each
takes the processor seconds of its phase, and its bytes share the network of its node and of the storage. The driver starts and
gathers tasks one after the other, at its measured time a task and a byte of results. Seconds of a row are those of the second half
of twice the rows: what a phase costs once is counted once. Merging counts in partitions was not measured, and is left out. Every
number that is an input is printed; every output is an extrapolation.
"""

from __future__ import annotations

import argparse
import heapq
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure import keep

RESULTS = Path(__file__).parent / "results"
WORKERS = (1, 10, 16, 64, 100, 256)
NETWORKS = {"10 Gbit/s": (10, 5), "100 Gbit/s": (100, 50)}
"""Gbit/s of a node, and GB/s of the shared storage of all nodes."""
AHEAD = 3  # parts in flight per worker, as in executors.cluster
GATHER = 3e-9
"""Processor seconds of the driver for a byte of a result, with Dask: 2.9 and 4.1 for a GB in arrays of 64 MB, on a busy machine."""
IDS = 7_912_889 + 33_823
"""Values of C1 and C2, the user and the item of configs/criteo-1tb.yaml, in 15 or more rows of the terabyte; by NVIDIA's DLRM."""
COUNT_BYTES, REPORT_ROW_BYTES = 4, 12
"""Bytes of a count by id in a result of the report, and of a row in its columns: label, user and item."""


@dataclass(frozen=True)
class Phase:
    """A phase of tasks, then a part that the driver does alone.

    Attributes:
        tasks: Number of tasks.
        cpu: Processor seconds of a task.
        bytes: Bytes that a task reads and writes over the network.
        driver: Seconds of the driver after the last task.
        result: Bytes of a task's result.
    """

    name: str
    tasks: int
    cpu: float
    bytes: float
    driver: float
    result: float = 0


def simulate(phase: Phase, workers: int, *, task_seconds: float, node: float, storage: float, cores: int) -> float:
    """Return the seconds of a phase.

    The share of the network is that of a phase in full swing: `workers` tasks at once, `cores` of them on a node.
    """
    busy = min(workers, phase.tasks)
    rate = min(node / min(cores, busy), storage / busy)
    seconds = phase.cpu + phase.bytes / rate
    free = [0.0] * busy
    heapq.heapify(free)
    driver = 0.0
    running: list[float] = []
    for _ in range(phase.tasks):
        driver += task_seconds + phase.result * GATHER
        if len(running) >= AHEAD * workers:
            driver = max(driver, heapq.heappop(running))
        end = max(heapq.heappop(free), driver) + seconds
        heapq.heappush(free, end)
        heapq.heappush(running, end)
    return max(*running, driver) + phase.driver


def phases(measured: dict[str, Any], text_bytes: float, rows: float) -> list[Phase]:
    """Return the phases of a preparation, from one worker on the rows of `clicks` in scale.json, and on twice these."""
    once = measured["one_worker"]
    twice = measured.get("twice", {name: 2 * seconds for name, seconds in once.items()})
    per_row = {name: (twice[name] - once[name]) / measured["rows"] for name in once}
    start = {name: max(0.0, 2 * once[name] - twice[name]) for name in once}
    parts = int(text_bytes / measured["part_bytes"])
    shards = int(rows / measured["shard_rows"])
    scratch, prepared = measured["scratch_row_bytes"], measured["prepared_row_bytes"]
    runs = int(rows / (2 * measured["shard_rows"]))
    groups = max(1, shards // max(1, int(shards**0.5) // 2))
    read, deal, fit, write, report = (
        per_row[name] * rows for name in ("read interactions", "assign to shards", "fit", "transform", "report")
    )
    counted = rows * REPORT_ROW_BYTES
    return [
        Phase("read", parts, read / parts, (text_bytes + rows * scratch) / parts, start["read interactions"]),
        Phase("deal", parts, deal / parts, 2 * rows * scratch / parts, start["assign to shards"]),
        Phase("deal, second level", runs, deal / runs, 2 * rows * scratch / runs, 0),
        Phase("fit", groups, fit / groups, rows * scratch / groups, start["fit"]),
        Phase("transform", shards, write / shards, rows * (scratch + prepared) / shards, start["transform"]),
        Phase("report", groups, report / groups, counted / groups, start["report"], COUNT_BYTES * IDS),
    ]


def main() -> None:
    """Simulate, and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=Path, default=RESULTS / "scale.json")
    parser.add_argument("--terabytes", type=float, default=1.1, help="bytes of text")
    parser.add_argument("--cores", type=int, default=16, help="workers on a node")
    given = parser.parse_args()
    scale = json.loads(given.scale.read_text())
    measured = scale["clicks"]
    text_bytes = given.terabytes * 1e12
    rows = text_bytes / measured["text_row_bytes"]
    steps = phases(measured, text_bytes, rows)
    cost = scale["tasks"]["local"]["task_ms"][1] / 1e3
    table = []
    for workers in WORKERS:
        line: dict[str, Any] = {"workers": workers}
        for name, (node, storage) in NETWORKS.items():
            options = {"node": node * 1e9 / 8, "storage": storage * 1e9, "cores": given.cores}
            own = {step.name: simulate(step, workers, task_seconds=cost, **options) for step in steps}
            line[name] = {"minutes": round(sum(own.values()) / 60, 1), "longest": max(own, key=lambda step: own[step])}
            line[name]["phases"] = {step: round(seconds) for step, seconds in own.items()}
        table.append(line)
    inputs = {"rows": rows, "text_bytes": text_bytes, "networks": NETWORKS, "cores": given.cores, "task_seconds": cost}
    inputs |= {"gather_seconds_per_byte": GATHER, "ids": IDS}
    keep("simulated_cluster", {"simulated": table, "inputs": inputs})


if __name__ == "__main__":
    main()
