"""Digests of prepared files, weights and figures of a fixed list of configs, to compare two versions of the code.

usage: same_results.py run OUT.json [--recsys PATH] [--nvtabular PATH] [--only NAME ...]
       same_results.py compare BEFORE.json AFTER.json

`run` needs `ml-latest-small.zip` in RECSYS_SHARED_DATA. Everything runs on one thread in a new workspace. Keys and folder names may
differ between versions; tables and tensors may not, and figures not by more than rounding (1e-12 of their size). `compare` exits
with 1 after any difference.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import load_file

HERE = Path(__file__).resolve().parent
MODELS = (
    "mlp", "dcn-v2", "deepfm", "dlrm", "fm", "logistic", "neumf", "wide-deep", "lightgbm", "popularity", "item-knn", "ease", "slim",
    "ials", "sasrec", "gru4rec", "bert4rec", "lightgcn", "mf", "two-tower",
)  # fmt: skip
FIGURES = ("pointwise", "ranking", "beyond")
SMALL = """
dataset: {name: movielens-latest-small}
split: {method: random, valid: 0.1, test: 0.1, seed: 42}
features:
  user: userId
  item: movieId
  label: label
  timestamp: timestamp
  ops:
    - {op: JoinExternal, table: movies, on: movieId, columns: [genres]}
    - {op: Categorify, columns: [userId, movieId, genres]}
    - {op: LambdaOp, expression: "rating > 3", output: label, dtype: int8}
train: {epochs: 1, device: cpu}
"""
OPS = """
dataset: {name: synthetic-small}
split: {method: leave-last-out}
features:
  user: userId
  item: movieId
  label: label
  timestamp: timestamp
  ops:
    - {op: JoinExternal, table: movies, on: movieId, columns: [genres]}
    - {op: LambdaOp, expression: "rating > 3", output: label, dtype: int8}
    - {op: HashedCross, columns: [userId, movieId], num_buckets: 64}
    - {op: TargetEncoding, columns: [movieId], target: label}
    - {op: JoinGroupby, columns: [userId], cont_cols: [rating], stats: [count, mean]}
    - {op: Categorify, columns: [userId, movieId, genres]}
  known: [userId_rating_mean]
model: {name: fm}
train: {epochs: 1, device: cpu}
"""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Print nothing."""


def cases() -> Iterator[tuple[str, str, list[str]]]:
    """Yield name, config and overrides of each case."""
    demo = str(HERE.parent / "configs" / "demo-labels.yaml")
    for engine in ("polars", "nvtabular"):
        yield f"demo, {engine}", demo, [f"etl.engine={engine}", "train.device=cpu"]
        yield f"small, {engine}", SMALL, [f"etl.engine={engine}", "model.name=popularity"]
        yield f"ops, {engine}", OPS, [f"etl.engine={engine}"]
    yield "demo, cluster", demo, ["etl.cluster=local", "etl.workers=2", "train.device=cpu"]
    yield "demo, two processes", demo, ["train.devices=2", "train.device=cpu"]
    for model in MODELS:
        yield f"small, {model}", SMALL, [f"model.name={model}"]
    yield "small, flat", SMALL, ["etl.layout=flat", "model.name=fm"]
    yield "small, fm over sampled candidates", SMALL, ["model.name=fm", "evaluate.candidates=sampled-uniform"]


def digests(recsys: str, config: str, overrides: list[str], folder: Path) -> dict[str, str]:
    """Run one case and return a digest by name of file, tensor or figure."""
    if "\n" in config:
        (path := folder / "config.yaml").write_text(config)
    else:
        path = Path(config)
    workspace = folder / "workspace"
    environment = os.environ | {"OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}
    command = [recsys, "--workspace", str(workspace), "--quiet", "run", str(path), *overrides]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return dict(sorted([*_prepared(workspace), *_weights(workspace), *_figures(workspace)]))


def _prepared(workspace: Path) -> Iterator[tuple[str, str]]:
    for data in sorted((workspace / "data").iterdir()):
        for path in sorted(data.rglob("*.parquet")):
            yield f"prepared {path.relative_to(data)}", _table(pq.read_table(path))


def _table(table: pa.Table) -> str:
    sink = pa.BufferOutputStream()
    table = table.replace_schema_metadata(None).combine_chunks()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return hashlib.sha256(sink.getvalue()).hexdigest()[:16]


def _weights(workspace: Path) -> Iterator[tuple[str, str]]:
    """Tensors by their content, because parameters may have other names."""
    for path in workspace.glob("runs/*/checkpoints/best.safetensors"):
        found = sorted(
            hashlib.sha256(f"{array.shape}{array.dtype}".encode() + array.tobytes()).hexdigest()[:16]
            for array in load_file(path).values()
        )
        yield from ((f"tensor {number}", digest) for number, digest in enumerate(found))


def _figures(workspace: Path) -> Iterator[tuple[str, str]]:
    for path in workspace.glob("runs/*/evaluation*.json"):
        evaluation = json.loads(path.read_text())
        for part in FIGURES:
            yield from _leaves(part, evaluation.get(part))


def _leaves(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(f"{name} {key}", inner)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _leaves(f"{name} {number}", inner)
    elif "seconds" not in name:
        yield name, repr(value)


def _equal(name: str, old: str | None, new: str | None) -> bool:
    if old is None or new is None or not name.startswith(FIGURES):
        return old == new
    try:
        return old == new or math.isclose(float(old), float(new), rel_tol=1e-12)
    except ValueError:  # a word
        return False


def compare(before: dict[str, dict[str, str]], after: dict[str, dict[str, str]]) -> int:
    """Print differences, and return their number."""
    differences = 0
    for case in sorted({*before, *after}):
        old, new = before.get(case, {}), after.get(case, {})
        names = [name for name in sorted({*old, *new}) if not _equal(name, old.get(name), new.get(name))]
        differences += len(names)
        print(f"{case}: {len(old)} before, {len(new)} after, {len(names)} differ")
        for name in names[:8]:
            print(f"    {name}: {old.get(name)} -> {new.get(name)}")
    return differences


def main() -> int:
    """Run the cases, or compare two results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run")
    running.add_argument("out", type=Path)
    running.add_argument("--recsys", default=str(Path(sys.executable).with_name("recsys")))
    numpy1 = HERE.parent / ".venv-numpy1" / "bin" / "recsys"
    running.add_argument("--nvtabular", default=str(numpy1), help="command of the environment with NVTabular")
    running.add_argument("--only", nargs="+", default=None, help="parts of the names of cases")
    comparing = commands.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    given = parser.parse_args()
    if given.command == "compare":
        before, after = json.loads(given.before.read_text()), json.loads(given.after.read_text())
        return int(compare(before, after) > 0)
    shared = os.environ.get("RECSYS_SHARED_DATA", HERE.parent.parent / "shared" / "data")
    mirror = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(shared)))
    threading.Thread(target=mirror.serve_forever, daemon=True).start()
    os.environ["RECSYS_MIRROR"] = f"http://127.0.0.1:{mirror.server_port}"
    found = {}
    for name, config, overrides in cases():
        if given.only is None or any(part in name for part in given.only):
            with tempfile.TemporaryDirectory() as folder:
                recsys = given.nvtabular if "nvtabular" in name else given.recsys
                found[name] = digests(recsys, config, overrides, Path(folder))
            print(f"{name}: {len(found[name])} digests", flush=True)
            given.out.write_text(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
