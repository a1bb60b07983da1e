"""Ops of plugins, from the config to prepared data, and their errors."""

import re
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

FOREIGN = "their_ops"
CONFIG = """dataset: {name: files, interactions: table.csv}
features:
  user: userId
  item: movieId
  label: label
  ops:
    - {op: Categorify, columns: [userId, movieId]}
    - {op: LambdaOp, expression: rating > 3, output: label}
    - {op: "%s", columns: [price]}
"""
TABLE = "userId,movieId,rating,price\n" + "".join(f"u{n % 30},i{n * 7 % 20},{1 + n % 5},{n % 8}\n" for n in range(600))
OPS = """
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
Path("ran").touch()
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from recsys_cli.ops.flow import Derived, Flow, filter_rows
from recsys_cli.ops.numeric import NumericOp
from recsys_cli.ops.op import RowFilter
from recsys_cli.ops.values import Values

class Scale(NumericOp):
    fitted: ClassVar[bool] = True
    columns: tuple[str, ...]

    def learn(self, frame, weight):
        return {name: frame.select(pl.col(name).max().cast(pl.Float64).alias("high")) for name in self.columns}

    def merge(self, parts):
        return pa.table({"high": [pc.max(pa.concat_tables(parts).column("high")).as_py()]})

    def finalize(self, merged):
        return dict(merged)

    def on_numpy(self, name, kind, state):
        high = state[name].column("high")[0].as_py()
        return lambda data: data / high

class OnPolars(Scale):
    def on_polars(self, values, name, kind, state):
        return values / state[name].column("high")[0].as_py()

def keep(batch):
    return batch.column("price").to_numpy() % 2 == 0

class Even(RowFilter):
    columns: tuple[str, ...]

    def choose(self, rows, context):
        return filter_rows(rows, keep, context.keeps)

@dataclass(frozen=True)
class Rows(Derived):
    rows: Flow
    change: object

    def batches(self, columns=None):
        yield from map(self.change, self.rows.batches(columns))

class Breaks(OnPolars):
    def __init__(self, **values):
        raise KeyError("broken")

class Plain:
    pass
"""


@pytest.fixture(autouse=True)
def package(tmp_path, monkeypatch):
    """A package of another author in the working directory."""
    monkeypatch.delenv("RECSYS_TRUST", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    (folder := tmp_path / FOREIGN).mkdir()
    (folder / "__init__.py").touch()
    (folder / "scale.py").write_text(OPS)
    (tmp_path / "table.csv").write_text(TABLE)
    yield folder
    forget()


def forget() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == FOREIGN]:
        del sys.modules[name]


def written(op: str, *, first: bool = False) -> Path:
    """Write a config with the op after all others, or before them."""
    lines = (CONFIG % op).splitlines()
    order = [*lines[:6], lines[8], *lines[6:8]] if first else lines
    (path := Path("x.yaml")).write_text("\n".join(order) + "\n")
    return path


def prices(split: str = "train") -> set[float]:
    (data,) = Path("workspace/data").iterdir()
    tables = [pq.read_table(path) for path in sorted((data / split).glob("*.parquet"))]
    return {value for table in tables for value in table.column("price").to_pylist()}


@pytest.mark.parametrize("op", ["Scale", "OnPolars"])
def test_a_foreign_op_learns_and_applies(recsys, op):
    config = written(f"{FOREIGN}.scale:{op}")
    for line in (["validate", config], ["etl", config], ["train", "train.epochs=1"], ["evaluate"]):
        answer = recsys(*line, "--trust", FOREIGN)
        assert answer.code == 0, answer.err
    assert sorted(prices()) == pytest.approx([n / 7 for n in range(8)])
    Path("new.csv").write_text("userId,movieId,rating,price\nu1,i1,5,14\n")
    run = next(Path("workspace/runs").iterdir())
    answer = recsys("etl", "--apply", run, "new.csv", "--out", "new.parquet", "--trust", FOREIGN)
    assert answer.code == 0, answer.err
    assert pq.read_table("new.parquet").column("price").to_pylist() == [2.0]


@pytest.mark.numpy1
def test_a_foreign_op_runs_on_numpy_in_nvtabular(recsys):
    answer = recsys("etl", written(f"{FOREIGN}.scale:OnPolars"), "etl.engine=nvtabular", "--trust", FOREIGN)
    assert answer.code == 0, answer.err
    assert sorted(prices()) == pytest.approx([n / 7 for n in range(8)])


def test_a_foreign_filter_leaves_out_rows(recsys):
    config = written(f"{FOREIGN}.scale:Even", first=True)
    config.write_text(config.read_text() + "    - {op: Normalize, columns: [price]}\n")
    answer = recsys("etl", config, "--trust", FOREIGN)
    assert answer.code == 0, answer.err
    assert len(prices()) == 4


def test_the_code_of_a_foreign_op_is_part_of_the_key(recsys, package):
    config = written(f"{FOREIGN}.scale:OnPolars")
    assert recsys("etl", config, "--trust", FOREIGN).code == 0
    assert "up to date" in recsys("etl", config, "--trust", FOREIGN).out
    forget()
    (package / "scale.py").write_text(f"{OPS}\n# another version\n")
    assert "up to date" not in recsys("etl", config, "--trust", FOREIGN).out
    assert len(list(Path("workspace/data").iterdir())) == 2


def test_no_command_imports_an_untrusted_op(recsys):
    """Neither from a config, nor from prepared data; every command loads configs by the same function."""
    config = written(f"{FOREIGN}.scale:OnPolars")
    answer = recsys("etl", config)
    assert answer.code == 2
    assert f"x.yaml:9: features.ops.2: '{FOREIGN}.scale:OnPolars' is code of a plugin and not trusted" in answer.err
    assert f"recsys --trust {FOREIGN}" in answer.err
    assert recsys("etl", config, "--trust", FOREIGN).code == 0
    forget()
    Path("ran").unlink()
    assert "not trusted" in recsys("status", "--json").json["current"]["problem"]
    for line in (["train"], ["etl"], ["report"]):
        answer = recsys(*line)
        assert answer.code == 2
        assert "not trusted" in answer.err
    assert not Path("ran").exists()


def test_an_entry_point_needs_no_trust(recsys, tmp_path):
    info = tmp_path / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[recsys.ops]\nscale = {FOREIGN}.scale:OnPolars\n")
    assert recsys("etl", written("scale")).code == 0
    assert max(prices()) == 1
    assert "unknown op 'scael' (did you mean scale?)" in recsys("validate", written("scael")).err
    assert re.search(rf"scale +theirs +{FOREIGN}.scale:OnPolars", recsys("ls", "ops").out)
    for wrong, near in (("scael", "scale"), ("Categorfy", "Categorify")):
        assert f"no op '{wrong}' (did you mean {near}?)" in recsys("ls", "ops", wrong).err
    shown = recsys("ls", "ops", "scale", "--json").json
    assert (shown["package"], [option["name"] for option in shown["options"]]) == ("theirs", ["columns"])
    path = f"{FOREIGN}.scale:OnPolars"
    assert "not trusted" in recsys("ls", "ops", path.replace("OnPolars", "Plain")).err
    assert recsys("ls", "ops", path, "--json").json["options"] == shown["options"]


@pytest.mark.parametrize(
    ("op", "rest", "message"),
    [
        ("Plain", [], "'their_ops.scale:Plain' is not a subclass of recsys_cli.ops.op.Op"),
        ("Absent", [], "cannot load 'their_ops.scale:Absent': AttributeError"),
        ("Breaks", [], "the options of their_ops.scale:Breaks cannot be checked: KeyError: 'broken'"),
        ("OnPolars", ["features.ops.2.colums=[a]"], "features.ops.2.colums: unknown key\n"),
    ],
)
def test_invalid_foreign_op_is_reported(recsys, op, rest, message):
    answer = recsys("etl", written(f"{FOREIGN}.scale:{op}"), *rest, "--trust", FOREIGN)
    assert answer.code == 2, answer
    assert message in answer.err


FILTER = "return Rows(rows, lambda batch: {})"


@pytest.mark.parametrize(
    ("method", "body", "message"),
    [
        ("polars", "return frame.reverse()", " changes the order of rows"),
        ("polars", "return frame.head(3)", " changes the number of rows from "),
        ("polars", "return frame.select(self.columns)", " drops columns of other ops"),
        ("polars", "return frame.select(pl.all(), pl.col('absent'))", " (polars) failed: ColumnNotFoundError"),
        ("polars", "raise SystemExit(0)", " (polars) failed: SystemExit: 0"),
        ("on_polars", "return pl.col('absent')", " (polars) failed: ColumnNotFoundError"),
        ("numpy", "return lambda columns, rows: columns['absent']", " (numpy) failed: KeyError"),
        (
            "numpy",
            "return lambda columns, rows: columns.update(price=Values(columns['price'].data[:1]))",
            "but got length 1",
        ),
        ("outputs", "1 / 0", " failed: ZeroDivisionError"),
        ("learn", "return {}", " (learn) failed: KeyError: 'price'"),
        ("learn", "1 / 0", " (learn) failed: ZeroDivisionError"),
        ("merge", "1 / 0", " failed: ZeroDivisionError"),
        ("finalize", "return {}", " (finalize) failed: KeyError: 'price'"),
        ("choose", FILTER.format("batch.take(list(range(batch.num_rows))[::-1])"), "it changes the order of rows"),
        ("choose", FILTER.format("pa.concat_tables([batch, batch])"), "or repeats rows"),
        ("choose", FILTER.format("1 / 0"), " (choose) failed: ZeroDivisionError"),
        ("choose", "return None", " (choose) failed: TypeError: NoneType is no Flow"),
    ],
)
def test_fault_of_a_foreign_op_names_it(recsys, package, method, body, message):
    given = {
        "polars": "state, frame", "numpy": "state, types", "on_polars": "values, name, kind, state", "outputs": "inputs",
        "learn": "frame, weight", "merge": "parts", "finalize": "merged", "choose": "rows, context",
    }[method]  # fmt: skip
    base = {"choose": "Even", "numpy": "Scale"}.get(method, "OnPolars")
    (package / "scale.py").write_text(
        f"{OPS}\nclass Faulty({base}):\n    def {method}(self, {given}):\n        {body}\n"
    )
    config = written(f"{FOREIGN}.scale:Faulty", first=method == "choose")
    answer = recsys("etl", config, "--trust", FOREIGN)
    assert answer.code == 2, answer
    assert f"the op {FOREIGN}.scale:" in answer.err
    assert message in answer.err
    assert "Traceback" not in answer.err
    if method == "merge":
        assert "scale.py" in recsys("etl", config, "--trust", FOREIGN, "--verbose").err
