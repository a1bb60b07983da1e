"""Random tables of interactions in random formats, with random splits and ops, to compare ways to prepare them."""

from __future__ import annotations

import gzip
import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from recsys_cli.config import RunConfig
from recsys_cli.etl import counts, prepare, read_parts, staging
from recsys_cli.executors.executor import Executor
from recsys_cli.stages.etl import etl
from recsys_cli.workspace import Workspace

CONFIG: dict[str, Any] = {
    "dataset": {"name": "synthetic", "users": 300, "items": 200, "rows": 6_000},
    "split": {"method": "random", "valid": 0.15, "test": 0.15},
    "features": {
        "user": "userId", "item": "movieId", "label": "label", "timestamp": "timestamp",
        "ops": [
            {"op": "JoinExternal", "table": "movies", "on": "movieId", "columns": ["genres"]},
            {"op": "Categorify", "columns": ["userId", "movieId", "genres"]},
            {"op": "LambdaOp", "expression": "rating > 3", "output": "label", "dtype": "int8"},
        ],
    },
}  # fmt: skip
"""A small config of generated interactions and a joined table."""

FORMATS = ("csv", "quoted", "parquet", "hive", "jsonl", "gz", "bad", "tsv")
SPLITS: tuple[dict[str, Any], ...] = (
    {"method": "random", "valid": 0.2, "test": 0.1},
    {"method": "temporal", "valid": 0.2, "test": 0.1},
    {"method": "leave-last-out"},
    {"method": "user", "valid": 0.2, "test": 0.1},
    {"method": "session", "valid": 0.2, "test": 0.1},
    {"method": "files"},
)
FILTERS: tuple[dict[str, Any], ...] = (
    {"op": "Filter", "expression": "rating > 1"},
    {"op": "Dropna", "columns": ["price"]},
    {"op": "TimeWindow", "column": "time", "after": 1_600_000_300},
    {"op": "TimeWindow", "column": "time", "last": "2h"},
    {"op": "KCore", "columns": {"item": 2}},
    {"op": "Deduplicate", "columns": ["user", "item"]},
)
ENCODERS: tuple[list[dict[str, Any]], ...] = (
    [{"op": "Categorify", "columns": ["user", "item", "tag"]}],
    [{"op": "Categorify", "columns": ["user", "item", "tag"], "freq_threshold": 3}],
    [{"op": "Categorify", "columns": ["user", "item", "tag"], "max_size": 12, "num_buckets": 4}],
    [
        {"op": "Categorify", "columns": ["user"]},
        {"op": "Categorify", "columns": ["item", "seen"], "joint": True, "freq_threshold": 2},
        {"op": "Categorify", "columns": ["tag"]},
    ],
)
MORE: tuple[dict[str, Any], ...] = (
    {"op": "JoinExternal", "table": "items", "on": "item", "columns": ["color"]},
    {"op": "TargetEncoding", "columns": ["item"], "target": "label"},
    {"op": "JoinGroupby", "columns": ["item"], "cont_cols": ["price"], "stats": ["mean", "count"]},
    {"op": "Normalize", "columns": ["price"]},
)


def rows(random: np.random.Generator, number: int, *, texts: bool) -> pa.Table:
    """Return random interactions, with nulls, and with line ends and quotes in text."""
    words = np.array(["a", "b,c", 'say "hi"', "two\nlines", "", "naïve", "x" * 40])
    users = random.zipf(1.5, number) % 60
    return pa.table({
        "user": pa.array([f"u{user}" for user in users]) if texts else pa.array(users),
        "item": pa.array(random.zipf(1.3, number) % 90),
        "seen": pa.array(random.integers(0, 90, number)),
        "tag": pa.array(words[random.integers(0, len(words), number)], mask=random.random(number) < 0.05),
        "rating": pa.array(random.integers(1, 6, number)),
        "price": pa.array(random.normal(size=number).round(3), mask=random.random(number) < 0.1),
        "time": pa.array(1_600_000_000 + random.integers(0, 67, number) * 300),
    })  # fmt: skip


def write(table: pa.Table, name: str, kind: str, folder: Path, random: np.random.Generator) -> dict[str, Any]:
    """Write a table in several files of a format; return its options."""
    cuts = np.sort(random.integers(0, table.num_rows, 3))
    parts = [table.slice(a, b - a) for a, b in zip((0, *cuts), (*cuts, table.num_rows), strict=True) if b > a]
    root = folder / name
    root.mkdir(parents=True)
    for number, part in enumerate(parts):
        path = root / f"part-{number}"
        if kind == "parquet":
            pq.write_table(part, path.with_suffix(".parquet"), row_group_size=7)
        elif kind == "hive":
            (root / f"day={number}").mkdir()
            pq.write_table(part, root / f"day={number}" / "part.parquet", row_group_size=11)
        elif kind == "jsonl":
            lines = (json.dumps({k: v for k, v in row.items() if v is not None}) for row in part.to_pylist())
            path.with_suffix(".jsonl").write_text("".join(f"{line}\n" for line in lines))
        else:
            _write_text(part, path, kind)
    (root / "_SUCCESS").touch()
    suffix = {"parquet": "*.parquet", "jsonl": "*.jsonl", "gz": "*.csv.gz", "tsv": "*.tsv"}.get(kind, "*.csv")
    return {"files": str(root) if kind == "hive" else str(root / suffix)}


def _write_text(part: pa.Table, path: Path, kind: str) -> None:
    if kind != "quoted":  # no line ends in fields
        tags = pa.array([tag and tag.replace("\n", " ").replace('"', "") for tag in part.column("tag").to_pylist()])
        part = part.set_column(part.column_names.index("tag"), "tag", tags)
    file = pa.BufferOutputStream()
    pa_csv.write_csv(part, file, pa_csv.WriteOptions(delimiter="\t" if kind == "tsv" else ","))
    text = file.getvalue().to_pybytes()
    if kind == "bad":
        lines = text.splitlines(keepends=True)
        text = b"".join((*lines[: len(lines) // 2], b"too,few\n", b"\n", *lines[len(lines) // 2 :]))
    if kind == "gz":
        path.with_suffix(".csv.gz").write_bytes(gzip.compress(text))
    else:
        path.with_suffix(".tsv" if kind == "tsv" else ".csv").write_bytes(text)


def config_of(seed: int, folder: Path) -> RunConfig:
    """Write the tables of a seed to a folder, and return their config."""
    random = np.random.default_rng(seed)
    kind, split = FORMATS[seed % len(FORMATS)], SPLITS[(seed // 2) % len(SPLITS)]
    table = rows(random, int(random.integers(150, 400)), texts=bool(seed % 3))
    options = write(table, "interactions", kind, folder, random)
    pq.write_table(pa.table({"item": range(0, 120, 2), "color": ["red", "blue"] * 30}), folder / "items.parquet")
    split = dict(split) | ({"tie_seed": seed} if seed % 5 < 2 else {})
    if split["method"] == "files":
        ends = {"parquet": "*.parquet", "jsonl": "*.jsonl", "gz": "*.csv.gz", "tsv": "*.tsv", "hive": "**/*.parquet"}
        for name, size in (("train", 200), ("valid", 60), ("test", 30)):
            write(rows(random, size, texts=bool(seed % 3)), name, kind, folder, random)
            split[name] = str(folder / name / ends.get(kind, "*.csv"))
    filters = [FILTERS[at] for at in random.permutation(len(FILTERS))[: seed % 3]]
    joins, *others = MORE
    encoders = ENCODERS[seed % len(ENCODERS)]
    more = [others[at] for at in random.permutation(len(others))[: 1 + seed % 2]]
    label = {"op": "LambdaOp", "expression": "rating > 3", "output": "label", "dtype": "int8"}
    return RunConfig.model_validate({
        "dataset": {"name": "files", "interactions": options, "tables": {"items": str(folder / "items.parquet")}},
        "split": split,
        "features": {
            "user": "user", "item": "item", "label": "label", "timestamp": "time",
            "ops": [*filters, *([joins, {"op": "Categorify", "columns": ["color"]}] if seed % 2 else []), *encoders, label, *more],
        },
        "etl": {"on_bad_rows": "skip" if kind == "bad" else "error", "shard_rows": int(random.integers(10, 60))},
    })  # fmt: skip


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file of prepared data, and of the manifest what does not tell how it was done."""
    files = {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    del files["config.yaml"]
    how = ("created", "engine", "cluster", "workers", "threads", "seconds", "peak_memory", "files", "checksum")
    manifest = {key: value for key, value in json.loads(files["manifest.json"]).items() if key not in how}
    return files | {"manifest.json": json.dumps(manifest).encode()}


def differing(executor: Executor, seeds: range, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the seeds whose tables an executor prepares, in parts of any size, in other bytes than the threads of this process."""
    found = []
    for seed in seeds:
        config = config_of(seed, folder / str(seed) / "tables")
        alone = etl(config, Workspace(folder / str(seed) / "alone")).artifact
        with monkeypatch.context() as changed:
            changed.setattr(prepare, "open_executor", lambda *_, **__: nullcontext(executor))
            changed.setattr(read_parts, "PART_CHUNKS", (1e-5, 1e-4, 1)[seed % 3])
            changed.setattr(counts, "PARTITION_ROWS", (20, 100, 1 << 25)[seed % 3])
            changed.setattr(staging, "MAX_SHARDS", (1, 1_000)[seed // 3 % 2])
            together = etl(config, Workspace(folder / str(seed) / "together")).artifact
        found += [] if contents(together.folder) == contents(alone.folder) else [seed]
    return found
