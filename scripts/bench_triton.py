"""Requests per second and latencies of `recsys serve` and of Triton (Python backend), with one model and the same requests.

usage: bench_triton.py RUN [--workspace workspace] [--rounds 3] [--seconds 10] [--connections 16]

Both speak the Open Inference Protocol: one JSON body goes to /v2/models/NAME/infer of both, for one raw row, 64 raw rows, and
the top-10 of one user. Before the measurement their answers are compared. In each round both serve the same bodies in turn:
with one connection, with all of them (closed loop, the peak), and at 80 % of the lower of both peaks (open loop). One process
of ours with its threads, and one instance per model of Triton. With --url and --name, a running server takes the place of
`recsys serve`. The result goes to scripts/results/triton.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from load.generator import Load, generate
from measure import keep, machine, spread
from triton_server import free_ports, triton_server

from recsys_cli.serving.export.triton.repository import RepositoryRows
from recsys_cli.stages.export import export, served_run
from recsys_cli.stages.verify import sample_rows
from recsys_cli.workspace import TrainedRun, Workspace

BODIES, K = 200, 10
TOP_K = f"top-{K}"
DTYPES = {"i": "INT64", "u": "UINT64", "b": "BOOL", "O": "BYTES"}
Bodies = Mapping[str, Sequence[bytes]]


def main() -> None:
    """Export the run twice, start both servers, measure in turn and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of a finished run")
    parser.add_argument("--workspace", default="workspace")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--url", help="address of a running server of ours")
    parser.add_argument("--name", default="bench", help="name of the bundle in it")
    line = parser.parse_args()
    workspace, run = Workspace(line.workspace), TrainedRun(line.run)
    with tempfile.TemporaryDirectory() as scratch:
        bundle = export(run, workspace, out=Path(scratch, "bundle"), verify=False).folder
        repository = export(run, workspace, kind="triton", out=Path(scratch, "bench"), verify=False).folder
        bodies = _bodies(run, workspace, repository)
        ours = nullcontext(line.url) if line.url else _serve(bundle)
        with ours as address, triton_server(repository) as triton:
            urls = {
                kind: {
                    "recsys": f"{address}/v2/models/{line.name}{'-topk' if kind == TOP_K else ''}/infer",
                    "triton": f"{triton.url}/v2/models/bench_{'recommend' if kind == TOP_K else 'score'}/infer",
                }
                for kind in bodies
            }
            for kind, pair in urls.items():
                _compare(kind, pair, bodies[kind][0])
            found = {
                kind: _measured(pair, bodies[kind], line.rounds, line.seconds, line.connections)
                for kind, pair in urls.items()
            }
    about = {"machine": machine("torch", "nvidia-pytriton"), "model": str(run.folder.name)}
    keep("triton", {**about, "connections": line.connections, "requests (min / median / max)": found})


def _bodies(run: TrainedRun, workspace: Workspace, repository: Path) -> Bodies:
    """Return the bodies of requests by kind."""
    raw = sample_rows(run, workspace)
    if raw is None:
        raise SystemExit(f"the raw data of {run.folder} is gone: no rows to score")
    scorer = RepositoryRows(repository)
    if lists := [one.name for one in scorer.tensors if one.ragged]:
        raise SystemExit(f"{', '.join(lists)}: the servers have different forms of lists; name a run without them")
    rows = raw.select([one.name for one in scorer.tensors]).drop_null().to_pylist()
    served = served_run(run, workspace)
    users = served.users.values[: served.users.num_train].to_pylist()
    draw = np.random.default_rng(0)

    def scored(count: int) -> bytes:
        chosen = [rows[at] for at in draw.integers(len(rows), size=count)]
        return _body(scorer.request({one.name: [row[one.name] for row in chosen] for one in scorer.tensors}))

    def ranked(user: Any) -> bytes:
        given = np.array([[str(user).encode()]], object) if isinstance(user, str) else np.array([[user]])
        return _body({"user": given, "k": np.array([[K]])})

    return {
        "1 row": [scored(1) for _ in range(BODIES)],
        "64 rows": [scored(64) for _ in range(BODIES)],
        TOP_K: [ranked(users[at]) for at in draw.integers(len(users), size=BODIES)],
    }


def _body(tensors: Mapping[str, np.ndarray]) -> bytes:
    """Return a request of the Open Inference Protocol."""
    inputs = [
        {
            "name": name,
            "datatype": DTYPES.get(values.dtype.kind, f"FP{8 * values.dtype.itemsize}"),
            "shape": list(values.shape),
            "data": [value.decode() if isinstance(value, bytes) else value for value in values.ravel().tolist()],
        }
        for name, values in tensors.items()
    ]
    return json.dumps({"inputs": inputs}).encode()


@contextmanager
def _serve(bundle: Path) -> Iterator[str]:
    """Start `recsys serve` with one process, and yield its address."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "recsys_cli", "serve", f"bench={bundle}", "--port", str(port)]
    with tempfile.TemporaryDirectory() as feedback:
        process = subprocess.Popen([*command, "--feedback", feedback], stdout=subprocess.DEVNULL)
        try:
            _wait(f"http://127.0.0.1:{port}", process)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(30)


def _wait(address: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        try:
            urllib.request.urlopen(f"{address}/v2/health/ready", timeout=5).close()  # noqa: S310 - of loopback
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("recsys serve did not start")


def _compare(kind: str, urls: Mapping[str, str], body: bytes) -> None:
    """Stop unless both servers have equal scores."""
    scores = []
    for url in urls.values():
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})  # noqa: S310 - of loopback
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            outputs = {one["name"]: one["data"] for one in json.load(answer)["outputs"]}
        scores.append(np.array(outputs["score"], np.float32))
    if scores[0].shape != scores[1].shape or not np.allclose(*scores, rtol=1e-5, atol=1e-6):
        raise SystemExit(f"{kind}: the servers have different scores: {scores}")


def _measured(
    urls: Mapping[str, str], bodies: Sequence[bytes], rounds: int, seconds: float, connections: int
) -> dict[str, Any]:
    """Return latencies and rates of both servers by kind of load, with ratios."""
    loads = {"one connection": (1, 0.0), "peak": (connections, 0.0)}
    found = {name: _in_turn(urls, bodies, rounds, seconds, *load) for name, load in loads.items()}
    rate = 0.8 * min(median(one["rate"] for one in results) for results in found["peak"].values())
    found[f"{rate:.0f} per second"] = _in_turn(urls, bodies, rounds, seconds, 4 * connections, rate)
    return {name: _figures(results) for name, results in found.items()}


def _in_turn(
    urls: Mapping[str, str], bodies: Sequence[bytes], rounds: int, seconds: float, connections: int, rate: float
) -> dict[str, list[dict[str, Any]]]:
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in urls}
    for number in range(rounds):
        for name, url in urls.items():
            result = generate(Load(url, bodies, rate, seconds, connections, number))
            if result["failed"]:
                raise SystemExit(f"{url}: {result['failed']} of {result['sent']} requests failed: {result['answers']}")
            results[name].append(result)
    return results


def _figures(results: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    figures: dict[str, Any] = {
        name: {
            "per second": spread([one["rate"] for one in runs], 0),
            **{f"{share} ms": spread([one["ms"][share] for one in runs]) for share in ("p50", "p99")},
        }
        for name, runs in results.items()
    }
    pairs = list(zip(results["recsys"], results["triton"], strict=True))
    figures["recsys per triton"] = {
        "rate": spread([ours["rate"] / triton["rate"] for ours, triton in pairs]),
        **{
            share: spread([ours["ms"][share] / triton["ms"][share] for ours, triton in pairs])
            for share in ("p50", "p99")
        },
    }
    return figures


if __name__ == "__main__":
    main()
