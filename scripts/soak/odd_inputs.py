"""Odd inputs through `recsys etl`: every answer has to be 0, 2 or 4, and nothing but a message may reach stderr.

    python scripts/soak/odd_inputs.py --seed 1 --count 200 --engine nvtabular

An input follows from (seed, number, engine) alone. A line for each failure, then counts by exit code as JSON.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import chdir
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from pyarrow import csv
from typer.testing import CliRunner

from recsys_cli.cli import app

ENGINES = ("polars", "nvtabular")
ALLOWED = {0, 2, 4}
_NOISE = ("Traceback", "Exception ignored", "unexpected ")
Draw = random.Random


@dataclass(frozen=True)
class Outcome:
    """What became of one input.

    Attributes:
        what: The input: its form and what was done to it.
        code: The exit code.
        text: What was written.
    """

    what: str
    code: int
    text: str

    @property
    def is_wrong(self) -> bool:
        """Whether the program has no right to such an answer."""
        return self.code not in ALLOWED or any(noise in self.text for noise in _NOISE)


def main(
    seed: int, count: int, engines: Sequence[str] = ENGINES, *, tell: Callable[[str], None] = print
) -> dict[str, Any]:
    """Try odd inputs on each engine.

    Args:
        seed: Decides all of them.
        count: How many on each engine.
        engines: Names of engines.
        tell: Gets a line for each failure.

    Returns:
        Counts by engine and exit code, and the failures.
    """
    counts: dict[str, Counter[str]] = {engine: Counter() for engine in engines}
    failures = []
    with tempfile.TemporaryDirectory(prefix="odd-inputs-") as folder, chdir(folder):
        for number in range(count):
            for engine in engines:
                outcome = attempt(seed, number, engine)
                counts[engine][str(outcome.code)] += 1
                if outcome.is_wrong:
                    line = f"seed {seed} number {number} {engine}: exit {outcome.code}: {outcome.what}: {outcome.text.strip()}"
                    failures.append(line)
                    tell(line)
    codes = {engine: dict(sorted(found.items())) for engine, found in counts.items()}
    return {"seed": seed, "count": count, "codes": codes, "failures": failures}


def attempt(seed: int, number: int, engine: str) -> Outcome:
    """Prepare one input in the working directory."""
    draw = Draw(f"{seed}/{number}")
    for name in ("w", "data"):
        shutil.rmtree(name, ignore_errors=True)
    Path("data").mkdir()
    what, dataset = _dataset(draw)
    Path("c.yaml").write_text(yaml.safe_dump({"dataset": dataset, **_config(draw, engine)}), encoding="utf-8")
    found = CliRunner().invoke(app, ["-w", "w", "etl", "c.yaml", "--quiet"])
    text = found.stdout + found.stderr
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        text += repr(found.exception)
    return Outcome(what, found.exit_code, text)


def _config(draw: Draw, engine: str) -> dict[str, Any]:
    ops: list[dict[str, Any]] = [
        {"op": "LambdaOp", "expression": "rating > 3", "output": "label", "dtype": "int8"},
    ]
    number: list[dict[str, Any]] = [
        {"op": "FillMissing", "columns": ["age"], "fill_val": 0, "add_binary_cols": True},
        {"op": "FillMedian", "columns": ["age"]},
        {"op": "Clip", "columns": ["age"], "min_value": 0, "max_value": 100},
        {"op": "LogOp", "columns": ["age"]},
        {"op": "Normalize", "columns": ["age"]},
        {"op": "NormalizeMinMax", "columns": ["age"]},
        {"op": "ReduceDtypeSize", "columns": ["age"]},
        {"op": "Bucketize", "columns": ["age"], "boundaries": [10, 20]},
    ]
    ops += draw.sample(number[:-1], draw.randint(0, 3)) + ([number[-1]] if draw.random() < 0.2 else [])
    if draw.random() < 0.2:
        ops.append({"op": "TargetEncoding", "columns": ["item"], "target": "label"})
    if draw.random() < 0.2:
        ops.append({"op": "JoinGroupby", "columns": ["user"], "cont_cols": ["rating"], "stats": ["mean", "count"]})
    if draw.random() < 0.2:
        ops.insert(0, {"op": "Dropna", "columns": ["rating"]})
    if draw.random() < 0.2:
        ops.insert(0, {"op": "KCore", "columns": {"user": 2}})
    split = draw.choice([
        {"method": "random", "valid": 0.2, "test": 0.2}, {"method": "temporal", "valid": 0.2, "test": 0.2},
        {"method": "leave-last-out"}, {"method": "user", "valid": 0.2, "test": 0.2},
    ])  # fmt: skip
    ops.append({"op": "Categorify", "columns": ["user", "item", *draw.choice([[], ["tags"]])]})
    features = {"user": "user", "item": "item", "label": "label", "timestamp": draw.choice(["time", None]), "ops": ops}
    features["known"] = ["user_rating_mean"]
    if features["timestamp"] is None and split["method"] in {"temporal", "leave-last-out"}:
        features["timestamp"] = "time"
    etl = {"engine": engine, "memory_mib": draw.choice([256, 1024]), "on_bad_rows": draw.choice(["error", "skip"])}
    return {"split": split, "features": features, "etl": etl}


def _table(draw: Draw) -> pa.Table:
    rows = draw.choice([1, 2, 30, 300])
    return pa.table({
        "user": [draw.randrange(9) for _ in range(rows)],
        "item": [f"i{draw.randrange(12)}" for _ in range(rows)],
        "rating": [draw.randrange(1, 11) / 2 for _ in range(rows)],
        "age": [draw.choice([draw.randrange(90), None, 4]) for _ in range(rows)],
        "tags": [draw.choice(["a", "b", 'say "c", so', "", "é"]) for _ in range(rows)],
        "time": [1_000_000_000 + draw.randrange(10**6) for _ in range(rows)],
    })  # fmt: skip


def _dataset(draw: Draw) -> tuple[str, dict[str, Any]]:
    table = _table(draw)
    if draw.random() < 0.5:
        what, changed = _odd_column(draw, table)
        path, done = Path("data/r.parquet"), "parquet"
        try:
            pq.write_table(changed, path, row_group_size=draw.choice([7, 10**6]))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            return f"parquet cannot hold {what}: {error}", {"name": "files", "interactions": "data/none.parquet"}
        if draw.random() < 0.25:
            done, data = _damaged(draw, path.read_bytes())
            path.write_bytes(data)
        return f"{done}: {what}", {"name": "files", "interactions": str(path)}
    packed = draw.random() < 0.15
    path = Path("data/r.csv.gz" if packed else "data/r.csv")
    sink = pa.BufferOutputStream()
    csv.write_csv(table, sink)
    what, text, dialect = _odd_text(draw, sink.getvalue().to_pybytes())
    if packed:
        text = gzip.compress(text)
        text = _cut(draw, text) if draw.random() < 0.5 else text
    path.write_bytes(text)
    return f"text: {what}", {"name": "files", "interactions": {"files": str(path), **dialect}}


def _damaged(draw: Draw, data: bytes) -> tuple[str, bytes]:
    if draw.random() < 0.5:
        return "parquet that is cut", _cut(draw, data)
    flipped = bytearray(data)
    for _ in range(draw.choice([1, 8])):
        flipped[draw.randrange(len(flipped))] ^= 1 << draw.randrange(8)
    return "parquet with flipped bits", bytes(flipped)


def _cut(draw: Draw, data: bytes) -> bytes:
    return data[: draw.randrange(len(data))]


_BIG = 2**63 - 1
_VALUES: dict[str, tuple[pa.DataType, Sequence[Any]]] = {
    "nulls": (pa.null(), [None]),
    "nulls of a type": (pa.int64(), [None]),
    "floats": (pa.float64(), [1.5, float("nan"), float("inf"), -float("inf"), 1e308, -0.0, None]),
    "huge numbers": (pa.int64(), [_BIG, -_BIG - 1, 0, 1]),
    "uint64": (pa.uint64(), [2**64 - 1, 0, 1]),
    "truths": (pa.bool_(), [True, False, None]),
    "texts": (pa.string(), ["", "a", "3", "a\x00b", "é", None]),
    "numbers as texts": (pa.string(), ["1", "2", "3.5", "٣", "1_000"]),
    "large texts": (pa.large_string(), ["a", "b" * 1000]),
    "bytes": (pa.binary(), [b"\xff", b"", b"a\x00"]),
    "fixed bytes": (pa.binary(2), [b"ab", b"cd"]),
    "days": (pa.date32(), [date(1, 1, 1), date(2020, 2, 2), date(9999, 12, 31), None]),
    "times": (pa.timestamp("us"), [datetime(1, 1, 1), datetime(2020, 2, 2), datetime(9999, 12, 31), None]),
    "times in ns": (pa.timestamp("ns"), [datetime(1700, 1, 1), datetime(2200, 2, 2)]),
    "times with a zone": (pa.timestamp("ms", "Europe/Berlin"), [datetime(2020, 1, 1), None]),
    "times of a day": (pa.time64("us"), [time(1, 2, 3)]),
    "durations": (pa.duration("s"), [timedelta(1), timedelta(-1)]),
    "decimals": (pa.decimal128(30, 2), [Decimal("1.50"), Decimal("99999999999999999999.00"), None]),
    "whole decimals": (pa.decimal128(30, 0), [Decimal(5), Decimal(10**25)]),
    "lists": (pa.list_(pa.int64()), [[1, 2], [], None, [None]]),
    "lists of texts": (pa.list_(pa.string()), [["a"], [], ["b", None]]),
    "lists of lists": (pa.list_(pa.list_(pa.int64())), [[[1], []], None]),
    "structs": (pa.struct([("x", pa.int64())]), [{"x": 1}, None]),
    "maps": (pa.map_(pa.string(), pa.int64()), [[("a", 1)], []]),
    "small numbers": (pa.int8(), [-128, 127, None]),
}


def _odd_column(draw: Draw, table: pa.Table) -> tuple[str, pa.Table]:
    """Return a table of which something is changed, and what."""
    kind = draw.choice(["type", "type", "type", "type", "dictionary", "rows", "missing", "twice", "name", "values"])
    name = draw.choice(table.column_names)
    place = table.column_names.index(name)
    if kind == "rows":
        return "no rows", table.slice(0, 0)
    if kind == "missing":
        return f"no column {name}", table.drop_columns([name])
    if kind == "twice":
        return f"two columns {name}", table.append_column(name, table.column(draw.randrange(6)))
    if kind == "name":
        odd = draw.choice(["", " ", "\x00", "é", "a,b", "x" * 5000, "\x01number", 'a"b', "../x"])
        return f"{name} is called {odd[:20]!r}", table.rename_columns(
            [odd if n == name else n for n in table.column_names]
        )
    if kind == "dictionary":
        return f"{name} is a dictionary", table.set_column(place, name, table.column(name).dictionary_encode())
    what = draw.choice(list(_VALUES))
    held, values = _VALUES[what]
    odd_values = pa.array([draw.choice(values) for _ in range(table.num_rows)], held)
    return f"{name} holds {what}", table.set_column(place, name, odd_values)


_FIELDS = ["", "nan", "inf", "-inf", "1e400", "9" * 40, "1_000", "٣", "true", "NULL", "0x1F", "1,5", " 7 ", "-", "\x00",
           "a\x1fb", "y" * 300_000, '"', '12" vinyl', '"open', '"a\nb"', "\r", "2020-01-01",
           "31.1.2026", "=1+1", "\ufeff1", "💥"]  # fmt: skip


def _odd_text(draw: Draw, text: bytes) -> tuple[str, bytes, dict[str, Any]]:
    """Return a text of which something is changed, what, and what is said of how it is written."""
    lines = text.split(b"\n")
    kind = draw.choice([
        "field", "field", "field", "field", "fields", "header", "header", "cut", "encoding", "encoding", "line ends", "bytes",
        "column", "no rows", "empty", "blank lines", "dialect", "dialect", "repeated",
    ])  # fmt: skip
    row = draw.randrange(1, max(2, len(lines) - 1))
    if kind == "field":
        odd, place = draw.choice(_FIELDS), draw.randrange(6)
        fields = lines[row].split(b",")
        fields[place % len(fields)] = odd.encode()
        lines[row] = b",".join(fields)
        return f"field {odd[:20]!r} in column {place}", b"\n".join(lines), {}
    if kind == "column":
        place, odd = draw.randrange(6), draw.choice(_FIELDS[:14])
        changed = [lines[0], *(_with_field(line, place, odd.encode()) for line in lines[1:-1]), b""]
        return f"column {place} is all {odd[:20]!r}", b"\n".join(changed), {}
    if kind == "fields":
        lines[row] += draw.choice([b",1", b",", b",,,,"]) if draw.random() < 0.5 else b""
        lines[row] = lines[row] if draw.random() < 0.5 else lines[row].partition(b",")[2]
        return "a row with other fields", b"\n".join(lines), {}
    if kind == "header":
        odd = draw.choice([b"user,user,item,rating,age,time", b"", b"user", b"\xff,item",
                           b'"us\ner",item,rating,age,tags,time',
                           b"us\rer,item,rating,age,tags,time", b'"user,item', b",,,,,",
                           b"\x00,item,rating,age,tags,time"])  # fmt: skip
        return f"header {odd!r}", b"\n".join([odd, *lines[1:]]), {}
    if kind == "encoding":
        code = draw.choice(["utf-16", "utf-16-le", "latin-1", "cp1251", "utf-8-sig", "utf-32"])
        said = draw.choice([{}, {"encoding": "latin-1"}])
        return f"written in {code}", (text.decode() + '1,"é",1,1,é,1\n').encode(code, errors="replace"), said
    return kind, *_odd_whole(draw, kind, text, lines)


def _odd_whole(draw: Draw, kind: str, text: bytes, lines: list[bytes]) -> tuple[bytes, dict[str, Any]]:
    """Return a text that is changed everywhere, and what is said of how it is written."""
    match kind:
        case "cut":
            return _cut(draw, text), {}
        case "line ends":
            return b"".join(line + draw.choice([b"\n", b"\r\n", b"\r"]) for line in lines if line), {}
        case "bytes":
            flipped = bytearray(text)
            for _ in range(draw.choice([1, 5, 50])):
                flipped[draw.randrange(len(flipped))] = draw.randrange(256)
            return bytes(flipped), {}
        case "no rows":
            return lines[0] + draw.choice([b"", b"\n", b"\n\n\n"]), {}
        case "empty":
            return draw.choice([b"", b"\n", b"\xef\xbb\xbf", b"\x00" * 100, b" "]), {}
        case "blank lines":
            return b"\n\n\r\n".join(lines), {}
        case "repeated":
            return text + text, {}
    separator = draw.choice([";", "\t", "::", "|", '"', "\n", "é", "\\", ",", "a"])
    said = draw.choice([{"separator": separator}, {"quote": None}, {"quote": "'"}, {"quote": "é"}, {"quote": ","},
                        {"names": ["user", "item", "rating", "age", "tags", "time"]}, {"names": ["a"]},
                        {"types": {"user": "int32", "item": "float64"}}, {"types": {"tags": "timestamp"}},
                        {"lists": {"tags": ","}}, {"lists": {"item": "i"}}, {"encoding": "latin-1"}])  # fmt: skip
    return text.replace(b",", separator.encode()) if "separator" in said and draw.random() < 0.7 else text, said


def _with_field(line: bytes, place: int, field: bytes) -> bytes:
    fields = line.split(b",")
    fields[place % len(fields)] = field
    return b",".join(fields)


if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--engine", choices=[*ENGINES, "both"], default="both")
    line = parser.parse_args()
    result = main(line.seed, line.count, ENGINES if line.engine == "both" else (line.engine,))
    print(
        json.dumps(
            {key: value for key, value in result.items() if key != "failures"} | {"wrong": len(result["failures"])}
        )
    )
    sys.exit(bool(result["failures"]))
