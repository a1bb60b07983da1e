"""Scores of a bundle with an embedding table larger than memory: the page cache, with and without a cache of hot rows in front.

usage: bench_large_tables.py [--limit-mib 512] [--times 3] [--rounds 2] [--folder DIR]      (Linux, root)

A dlrm is trained on small synthetic data and exported; then the item table of its bundle grows to a multiple of the memory limit.
Each variant scores the same requests in a process of its own with that limit (a memory cgroup; the file is out of the page cache
at the start): batches of 512 rows to fill the page cache, then measured batches of 512 rows and single rows. Item ids are
Zipf-distributed (exponent 1), in two orders of the table: by frequency, as Categorify numbers ids, and scattered, as hashed ids.

- readahead: the mapping without advice
- no readahead: MADV_RANDOM
- by page: MADV_RANDOM, and one request for all missing pages of a batch (the code of `recsys_cli.serving.large_tables`)
- ... + hot rows: a row cache of the most frequent items with a quarter of the limit; no admission policy has a higher hit rate

All variants give the same scores to the bit. The result goes to scripts/results/large_tables.json.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from measure import keep, machine

VARIANTS = ("readahead", "no readahead", "no readahead + hot rows", "by page", "by page + hot rows")
ORDERS = ("frequency", "scattered")
DIM = 64
BATCH = 512
STEP = 7_368_787
"""A prime: multiplication by it scatters ranks over a table."""
_SHARE = 40
"""Part of the requests for equality of scores, and of the slow variant, readahead, which runs in the first round only."""


def make_bundle(folder: Path, table_bytes: int) -> Path:
    """Export a small dlrm, and enlarge its item table."""
    import polars as pl
    import torch
    from safetensors.torch import load_file, save_file

    import recsys_cli as recsys
    from recsys_cli.workspace import Bundle, write_manifest

    rng = np.random.default_rng(0)
    rows = pl.DataFrame({
        "user": rng.integers(0, 100, 5_000), "item": rng.integers(0, 200, 5_000), "rating": rng.integers(1, 6, 5_000)
    })  # fmt: skip
    rows = rows.unique(["user", "item"], maintain_order=True).with_columns(timestamp=pl.int_range(pl.len()))
    workspace = recsys.Workspace(str(folder / "workspace"))
    names = {"user": "user", "item": "item", "rating": "rating", "timestamp": "timestamp"}
    model, train = {"name": "dlrm", "embedding_dim": DIM}, {"epochs": 1, "device": "cpu"}
    config = recsys.config_from_frame(rows, workspace, **names, model=model, train=train)
    recsys.etl(config, workspace, progress=False)
    run = recsys.train(config, workspace, progress=False)
    bundle = Bundle(Path(recsys.export(run, folder / "bundle", progress=False)))

    num_rows = table_bytes // (4 * DIM)
    schema = bundle.data.schema
    small = schema["item"].cardinality
    columns = tuple(
        column.model_copy(update={"cardinality": num_rows}) if column.name == "item" else column
        for column in schema.columns
    )
    schema.model_copy(update={"columns": columns}).write(bundle.data.folder / "schema.json")
    tensors = load_file(bundle.weights)
    for name, tensor in tensors.items():
        if "of_item" in name and tensor.shape[0] == small:
            noise = torch.randn(65_536, tensor.shape[1], generator=torch.Generator().manual_seed(0)) * tensor.std()
            tensors[name] = noise.repeat(-(-num_rows // len(noise)), 1)[:num_rows].contiguous()
            tensors[name][:small] = tensor
    save_file(tensors, bundle.weights)
    np.save(bundle.counts, np.zeros(num_rows, np.int64))
    about = bundle.manifest
    for name in ("kind", "format", "recsys", "created", "files"):
        about.pop(name)
    write_manifest(bundle.data.folder, "PreparedData", {"key": bundle.data.key, "rows": {}})
    write_manifest(bundle.folder, "Bundle", about)
    with bundle.weights.open("rb") as file:
        os.fsync(file.fileno())
    return bundle.folder


@contextmanager
def limited(limit: int) -> Iterator[Path]:
    """Create a memory cgroup, of version 1 or 2, and remove it at the end."""
    first = Path("/sys/fs/cgroup/memory")
    parent, name = (first, "memory.limit_in_bytes") if first.is_dir() else (first.parent, "memory.max")
    group = parent / f"recsys-large-tables-{os.getpid()}"
    group.mkdir()
    try:
        (group / name).write_text(str(limit))
        yield group
    finally:
        for _ in range(50):  # a cgroup of processes that have just ended is busy
            try:
                group.rmdir()
                break
            except OSError:
                time.sleep(0.1)


class HotRows:
    """A cache of given rows in front of `Embeddings.take`: a slot per row of the table, and a dense copy of the hot rows."""

    def __init__(self, take: Callable[..., Any], table: Any, hot: Any) -> None:
        import torch

        self.take, self.size = take, table.shape
        self.hits = self.misses = 0
        self.slot = np.full(table.shape[0], -1, np.int32)
        self.slot[hot] = np.arange(len(hot))
        self.rows = torch.empty(len(hot), table.shape[1])
        for start in range(0, len(hot), 8_192):
            self.rows[start : start + 8_192] = take(table, torch.from_numpy(hot[start : start + 8_192]), table.device)

    def __call__(self, table: Any, ids: Any, device: Any) -> Any:
        """Return `table[ids]`."""
        import torch

        if table.shape != self.size:
            return self.take(table, ids, device)
        slots = torch.from_numpy(self.slot[ids.numpy()])
        hit = slots >= 0
        num_hits = int(hit.sum())
        self.hits += num_hits
        self.misses += len(ids) - num_hits
        if num_hits == len(ids):
            return self.rows.index_select(0, slots)
        rows = torch.empty(len(ids), self.size[1])
        rows[hit] = self.rows.index_select(0, slots[hit])
        rows[~hit] = self.take(table, ids[~hit], device)
        return rows


def set_up(model: Any, variant: str, order: str, budget: int) -> HotRows | None:
    """Put the reads of a variant in place of those of the bundle."""
    from recsys_cli.models.embedding import Embeddings
    from recsys_cli.serving import large_tables

    module = model.embeddings
    table = module.table("item")
    if variant.startswith("no readahead"):
        large_tables._request = lambda *_: None
    elif variant == "readahead":
        model.apply(lambda one: one.__dict__.pop("take", None) if isinstance(one, Embeddings) else None)
    if not variant.endswith("hot rows"):
        return None
    hot = np.sort(ids_of(np.arange(budget // (4 * DIM)), table.shape[0], order))
    module.take = HotRows(module.take, table, hot)
    return module.take


def ids_of(ranks: Any, num_rows: int, order: str) -> Any:
    """Return encoded ids of frequency ranks."""
    size = num_rows - 3
    return 3 + (ranks if order == "frequency" else (ranks * STEP + 12_345) % size)


def score(folder: Path, variant: str, order: str, args: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of one variant; runs in a process of its own."""
    import torch

    from recsys_cli.batch import Batch
    from recsys_cli.serving.bundle import read_bundle
    from recsys_cli.workspace import Bundle

    torch.set_num_threads(1)
    served = read_bundle(Bundle(folder))
    model, num_rows = served.model, served.model.embeddings.table("item").shape[0]
    hot = set_up(model, variant, order, args.limit_mib << 18)
    rng, bits, figures = np.random.default_rng(1), hashlib.sha256(), {}
    slow = _SHARE if variant == "readahead" else 1
    phases = (("fill", BATCH, args.fill), ("batches", BATCH, args.batches), ("single rows", 1, args.singles))
    for phase, size, number in phases:
        seconds, before = [], (_read(), _faults())
        if hot is not None:
            hot.hits = hot.misses = 0
        draws = rng.random((number, size))
        for draw in draws[: -(-number // slow)]:
            ranks = np.minimum(np.exp(draw * np.log(num_rows - 3)).astype(np.int64) - 1, num_rows - 4)
            items = torch.from_numpy(ids_of(ranks, num_rows, order).astype(np.int32))
            batch = Batch({"item": items, "user": torch.full_like(items, 3)}, {})
            started = time.perf_counter()
            with torch.inference_mode():
                scores = model.score(batch)
            seconds.append(time.perf_counter() - started)
            if len(seconds) <= number // _SHARE:
                bits.update(scores.numpy().tobytes())
        p50, p99 = np.percentile(seconds, [50, 99])
        figures[phase] = {
            "p50_ms": p50 * 1e3, "p99_ms": p99 * 1e3,
            "read_kb_per_request": (_read() - before[0]) / 1e3 / len(seconds),
            "major_faults_per_request": (_faults() - before[1]) / len(seconds),
            "row_hit_rate": hot.hits / (hot.hits + hot.misses) if hot is not None else None,
        }  # fmt: skip
    return {"scores": bits.hexdigest(), **figures}


def _read() -> int:
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes"))


def _faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt


def measured(folder: Path, variant: str, order: str, group: Path, arguments: list[str]) -> dict[str, Any]:
    """Run a variant in the cgroup, with its weights out of the page cache."""
    with (folder / "weights.safetensors").open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    child = [sys.executable, __file__, *arguments, "--folder", str(folder), "--child", variant, order, str(group)]
    done = subprocess.run(child, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{variant}, {order}: ended with {done.returncode}:\n{done.stderr[-2000:]}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(order, variant, json.dumps(figures), file=sys.stderr, flush=True)
    return figures


def medians(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the median of each figure over the rounds."""
    return {
        phase: {
            name: None if value is None else round(statistics.median(run[phase][name] for run in runs), 4)
            for name, value in runs[0][phase].items()
        }
        for phase in ("batches", "single rows")
    }


def compare(folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Run all variants in turn; exit if their scores differ."""
    arguments = [
        f"--{name}={getattr(args, name.replace('-', '_'))}" for name in ("limit-mib", "fill", "batches", "singles")
    ]
    result: dict[str, Any] = {}
    with limited(args.limit_mib << 20) as group:
        for order in ORDERS:
            runs: dict[str, list[dict[str, Any]]] = {variant: [] for variant in VARIANTS}
            for number in range(args.rounds):
                for variant in VARIANTS if not number else VARIANTS[1:]:
                    runs[variant].append(measured(folder, variant, order, group, arguments))
            digests = {run["scores"] for some in runs.values() for run in some}
            if len(digests) > 1:
                raise SystemExit(f"the variants have different scores: {digests}")
            figures = {variant: medians(some) for variant, some in runs.items()}
            base = figures["by page"]
            ratios = {
                variant: {
                    f"{phase} {name}": round(figures[variant][phase][name] / base[phase][name], 2)
                    for phase in base
                    for name in ("p50_ms", "p99_ms", "read_kb_per_request")
                    if base[phase][name]
                }
                for variant in VARIANTS
            }
            result[order] = {"figures": figures, "ratio_to_by_page": ratios, "scores_equal": True}
    return result


def main() -> None:
    """Measure, or be the process of one variant."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit-mib", type=int, default=512)
    parser.add_argument("--times", type=float, default=3, help="size of the table in memory limits")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--fill", type=int, default=800)
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--singles", type=int, default=2_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--child", nargs=3, metavar=("VARIANT", "ORDER", "CGROUP"))
    args = parser.parse_args()
    if args.child:
        variant, order, group = args.child
        (Path(group) / "cgroup.procs").write_text(str(os.getpid()))
        print(json.dumps(score(args.folder, variant, order, args)))
        return
    with tempfile.TemporaryDirectory(dir=args.folder) as scratch:
        bundle = make_bundle(Path(scratch), int(args.times * (args.limit_mib << 20)))
        size = (bundle / "weights.safetensors").stat().st_size
        measurement = {"limit_mib": args.limit_mib, "weights_mib": size >> 20, "dim": DIM, "rounds": args.rounds}
        keep("large_tables", {"machine": machine("torch"), **measurement, **compare(bundle, args)})


if __name__ == "__main__":
    main()
