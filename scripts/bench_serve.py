"""Requests per second and latencies of `recsys serve`: of one connection, the peak (closed loop), and a fixed rate at 80 % of it.

    python scripts/bench_serve.py [--items 85000] [--model mf] [--seconds 600] [--swaps 100 --rate 500]

A bundle is made from synthetic ratings (an epoch of training: the speed does not depend on the quality). Server and load
generator are processes of their own on this machine, so the rates include the generator's share. Latencies of the fixed
rate count from the arrival, with all waiting. With `--swaps` another measurement: a fixed rate without and with a change of the
served version each second. The result is in scripts/results/serve.json (or --name); run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from measure import keep, machine

from recsys_cli.serving.bundle import load_bundle
from recsys_cli.stages.publish import Publication
from recsys_cli.workspace import Workspace

ROOT = Path(__file__).resolve().parents[1]
RECSYS = str(Path(sys.executable).with_name("recsys"))
_SHARE = 0.8
_WARM_UP = 3.0
_WATCHED = 0.15
"""Seconds of questions after an event."""
_TOP = "top 10 of all items"
_ROUTES = ("/recommend", "/recommend", "/recommend", "/score")


def make_bundle(folder: Path, line: argparse.Namespace) -> Path:
    """Train a model on synthetic ratings, and export it."""
    sizes = {"users": line.users, "items": line.items, "rows": line.rows}
    config = json.loads(_run("config", str(ROOT / "configs" / "demo.yaml"), "--json", folder=folder))
    config = config.get("config", config)
    config["dataset"] = {"name": "synthetic", **sizes}
    config["model"] = {"name": line.model}
    config["train"] = {"epochs": 1, "batch_size": 8192}
    path = folder / "config.yaml"
    path.write_text(json.dumps({name: config[name] for name in ("dataset", "split", "features", "model", "train")}))
    for stage in ("download", "etl", "train"):
        _run(stage, str(path), folder=folder)
    _run("export", "--out", str(folder / "bundle"), "--no-verify", folder=folder)
    return folder / "bundle"


def write_bodies(folder: Path, bundle: Path) -> dict[str, Path]:
    """Write request bodies, and return their files by kind, in the order of `_ROUTES`."""
    served = load_bundle(bundle).served
    users = served.users.values[: min(served.users.num_train, 10_000)].to_pylist()
    items, draw = np.array(served.items.values.to_pylist()), np.random.default_rng(0)
    bodies: dict[str, Iterable[dict[str, Any]]] = {
        _TOP: ({"user": user, "k": 10} for user in users),
        "one of 1 candidate": ({"user": user, "candidates": [int(draw.choice(items))]} for user in users),
        "10 of 512 candidates": ({"user": user, "candidates": draw.choice(items, 512).tolist()} for user in users),
        "score of 1 row": ({"rows": [{"userId": user, "movieId": int(draw.choice(items))}]} for user in users),
    }
    files = {kind: folder / f"{number}.jsonl" for number, kind in enumerate(bodies)}
    for kind, values in bodies.items():
        files[kind].write_text("".join(json.dumps(one) + "\n" for one in values))
    return files


def swapped(line: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure a fixed rate without and with changes between two published versions, one a second."""
    bundle = make_bundle(folder, line)
    bodies, workspace = write_bodies(folder, bundle)[_TOP], Workspace(folder / "workspace")
    _run("train", str(folder / "config.yaml"), "train.seed=2", folder=folder)
    versions, runs = Publication(folder / "versions"), workspace.runs()
    for run in runs:
        versions.publish(run, workspace)

    def swap(number: int) -> None:
        for _ in range(number):
            time.sleep(1)
            if versions.current == versions.versions[1]:
                versions.publish(runs[-1], workspace)
            else:
                versions.rollback()

    with serving(versions.folder, line, folder) as (_, url):
        target, given = f"{url}/recommend", {"rate": line.rate, "seconds": line.swaps, "connections": 512}
        load(target, bodies, rate=line.rate, seconds=_WARM_UP, connections=64)
        found: dict[str, list[Any]] = {"without": [], "with": []}
        for _ in range(3):
            found["without"].append(load(target, bodies, **given))
            thread = threading.Thread(target=swap, args=(line.swaps,))
            thread.start()
            found["with"].append(load(target, bodies, **given))
            thread.join()
    return {"machine": machine("torch", "uvicorn"), "swaps": line.swaps, **found}


@contextmanager
def serving(what: Path, line: argparse.Namespace, folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Serve a bundle or a folder of versions; yield the process and its URL."""
    server = subprocess.Popen(
        [RECSYS, "serve", str(what), "--port", "0", "--workers", str(line.workers), "--workspace", str(folder)],
        stdout=subprocess.PIPE, text=True, env={"OMP_NUM_THREADS": "1", **os.environ},
    )  # fmt: skip
    try:
        assert server.stdout is not None
        yield server, server.stdout.readline().split()[0]
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)


def _run(*line: str, folder: Path) -> str:
    done = subprocess.run(
        [RECSYS, *line, "--workspace", str(folder / "workspace")],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )
    if done.returncode:
        raise SystemExit(f"recsys {' '.join(line)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def load(url: str, bodies: Path, *, rate: float, seconds: float, connections: int) -> dict[str, Any]:
    """Run the load generator in its own process."""
    command = [sys.executable, "-m", "scripts.load", url, "--bodies", str(bodies)]
    command += ["--rate", f"{rate:.1f}", "--seconds", str(seconds), "--connections", str(connections)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if not done.stdout:
        raise SystemExit(f"the load generator ended with {done.returncode}:\n{done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def memory_mib(process: int) -> dict[str, float]:
    """Return resident, own and shared memory of a process."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="utf-8").splitlines()
    sizes = {name: int(rest.split()[0]) / 1024 for name, _, rest in (line.partition(":") for line in lines[1:])}
    return {name: round(sizes[name], 1) for name in ("Rss", "Pss", "Private_Dirty")}


@contextmanager
def sampled(process: int) -> Iterator[list[float]]:
    """Yield a list that gets the memory of a process each minute."""
    sizes: list[float] = []
    ended = threading.Event()

    def sample() -> None:
        while not ended.wait(60):
            sizes.append(memory_mib(process)["Pss"])

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield sizes
    finally:
        ended.set()
        thread.join()


def feedback_ms(url: str, users: Iterable[int]) -> dict[str, float]:
    """Return the time of an acknowledged event, and the time after it to the last answer of any worker without its effect.

    Each question has a connection of its own, so that all workers answer.
    """
    acknowledged, stale = [], []
    for user in users:
        first = httpx.post(f"{url}/recommend", json={"user": user, "k": 1}).json()["items"][0]["item"]
        started = time.perf_counter()
        httpx.post(f"{url}/feedback", json={"events": [{"user": user, "item": first}]}).raise_for_status()
        ended, last = time.perf_counter(), 0.0
        acknowledged.append(ended - started)
        while (since := time.perf_counter() - ended) < _WATCHED:
            items = httpx.post(f"{url}/recommend", json={"user": user, "k": 1}).json()["items"]
            if items[0]["item"] == first:
                last = since
        stale.append(last)
    return {
        "events": len(stale),
        "acknowledged p50": round(float(np.median(acknowledged)) * 1e3, 3),
        "stale p50": round(float(np.median(stale)) * 1e3, 3),
        "stale max": round(max(stale) * 1e3, 3),
    }


def measure(line: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Start the server, and measure cold start, peak, and the fixed rate."""
    bundle = make_bundle(folder, line)
    manifest = json.loads((bundle / "manifest.json").read_text())
    kinds = write_bodies(folder, bundle)
    started = time.perf_counter()
    with serving(bundle, line, folder) as (server, url):
        cold = time.perf_counter() - started
        target = f"{url}/recommend"
        load(target, kinds[_TOP], rate=0, seconds=_WARM_UP, connections=line.connections)
        alone = {
            kind: load(url + route, bodies, rate=0, seconds=line.peak_seconds / 3, connections=1)["ms"]
            for (kind, bodies), route in zip(kinds.items(), _ROUTES, strict=True)
        }
        before, bodies = memory_mib(server.pid), kinds[_TOP]
        peak = load(target, bodies, rate=0, seconds=line.peak_seconds, connections=line.connections)
        with sampled(server.pid) as sizes_of_memory:
            steady = load(target, bodies, rate=_SHARE * peak["rate"], seconds=line.seconds, connections=512)
        metrics = httpx.get(f"{url}/metrics", timeout=30).text.splitlines()
        sizes = [text for text in metrics if text.startswith(("recsys_batch_size_count", "recsys_batch_size_sum"))]
        return {
            "machine": machine("torch", "fastapi", "uvicorn", "orjson"),
            "bundle": {name: manifest[name] for name in ("model", "num_users", "num_items")},
            "workers": line.workers,
            "cold_start_seconds": round(cold, 2),
            "one_connection_ms": alone,
            "peak": peak,
            "steady": steady,
            "batches": sizes,
            "feedback_ms": feedback_ms(url, range(1, 101)),
            "memory_mib": {"before": before, "after": memory_mib(server.pid), "pss by minute": sizes_of_memory},
        }


def main() -> None:
    """Measure, and keep the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="mf")
    parser.add_argument("--users", type=int, default=20_000)
    parser.add_argument("--items", type=int, default=85_000, help="some 60,000 of which have ratings in train")
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--peak-seconds", type=float, default=15)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--swaps", type=int, default=0)
    parser.add_argument("--rate", type=float, default=500)
    parser.add_argument("--name", default="serve", help="name of the result")
    line = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="recsys-serve-") as folder:
        keep(line.name, (swapped if line.swaps else measure)(line, Path(folder)))


if __name__ == "__main__":
    main()
