"""Ops of plugins, from the config to prepared data, and their errors."""

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
from pathlib import Path
from typing import ClassVar
Path("ran").touch()
from recsys_cli.ops import ForeignOp
from recsys_cli.ops.op import Op, calculated, numbers

class Scale(ForeignOp):
    fitted: ClassVar[bool] = True
    columnwise: ClassVar[bool] = True
    modules: ClassVar[dict[str, str]] = {
        "polars": "their_ops.scale.on_polars", "nvtabular": "their_ops.scale.absent", "aggregator": "their_ops.scale.merging"}
    columns: tuple[str, ...]

    def outputs(self, inputs):
        return calculated(numbers(inputs))

class OnPolars(Scale):
    modules: ClassVar[dict[str, str]] = {"polars": "their_ops.scale.on_polars", "aggregator": "their_ops.scale.merging"}

class Even(ForeignOp):
    phase: ClassVar = "rows"
    drops_only: ClassVar[bool] = True
    modules: ClassVar[dict[str, str]] = {"filter": "their_ops.scale.even"}
    columns: tuple[str, ...]

    def outputs(self, inputs):
        return {}

class Unmade(OnPolars):
    fitted: ClassVar[bool] = False
    modules: ClassVar[dict[str, str]] = {}

class Breaks(OnPolars):
    def __init__(self, **values):
        raise KeyError("broken")

class Plain:
    pass
"""
ON_POLARS = """
import polars as pl

def learn(op, frame, weight):
    return {name: frame.select(pl.col(name).max().cast(pl.Float64).alias("high")) for name in op.columns}

def apply(op, state, frame):
    return frame.with_columns(pl.col(name).cast(pl.Float64) / state[name].column("high")[0].as_py() for name in op.columns)
"""
MERGING = """
import pyarrow as pa
import pyarrow.compute as pc

def merge(parts):
    return pa.table({"high": [pc.max(pa.concat_tables(parts).column("high")).as_py()]})

def finalize(op, merged):
    return dict(merged)
"""
EVEN = """
from recsys_cli.ops.flow import filter_rows

def keep(batch):
    return batch.column("price").to_numpy() % 2 == 0

def choose(op, rows, context):
    return filter_rows(rows, keep, context.keeps)
"""


@pytest.fixture(autouse=True)
def package(tmp_path, monkeypatch):
    """A package of another author in the working directory."""
    monkeypatch.delenv("RECSYS_TRUST", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    folder = tmp_path / FOREIGN / "scale"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").touch()
    for name, text in {"__init__": OPS, "on_polars": ON_POLARS, "merging": MERGING, "even": EVEN}.items():
        (folder / f"{name}.py").write_text(text)
    (tmp_path / "table.csv").write_text(TABLE)
    yield folder
    forget()


def forget() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == FOREIGN]:
        del sys.modules[name]


def written(op: str) -> Path:
    path = Path("x.yaml")
    path.write_text(CONFIG % op)
    return path


def written_first(op: str) -> Path:
    """Write a config with the op before all others."""
    path = written(op)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:6], lines[8], *lines[6:8]]) + "\n")
    return path


def prices(split: str = "train") -> set[float]:
    (data,) = Path("workspace/data").iterdir()
    tables = [pq.read_table(path) for path in sorted((data / split).glob("*.parquet"))]
    return {value for table in tables for value in table.column("price").to_pylist()}


def test_a_foreign_op_learns_and_applies(recsys):
    config = written(f"{FOREIGN}.scale:Scale")
    for line in (["validate", config], ["etl", config], ["train", "train.epochs=1"], ["evaluate"]):
        answer = recsys(*line, "--trust", FOREIGN)
        assert answer.code == 0, answer.err
    assert sorted(prices()) == pytest.approx([n / 7 for n in range(8)])
    Path("new.csv").write_text("userId,movieId,rating,price\nu1,i1,5,14\n")
    answer = recsys(
        "etl",
        "--apply",
        next(Path("workspace/runs").iterdir()),
        "new.csv",
        "--output",
        "new.parquet",
        "--trust",
        FOREIGN,
    )
    assert answer.code == 0, answer.err
    assert pq.read_table("new.parquet").column("price").to_pylist() == [2.0]


def test_a_foreign_filter_leaves_out_rows(recsys):
    config = written_first(f"{FOREIGN}.scale:Even")
    config.write_text(config.read_text() + "    - {op: Normalize, columns: [price]}\n")
    answer = recsys("etl", config, "--trust", FOREIGN)
    assert answer.code == 0, answer.err
    assert len(prices()) == 4


def test_the_code_of_a_foreign_op_is_part_of_the_key(recsys, package):
    config = written(f"{FOREIGN}.scale:Scale")
    assert recsys("etl", config, "--trust", FOREIGN).code == 0
    assert "up to date" in recsys("etl", config, "--trust", FOREIGN).out
    for name in ("on_polars", "__init__"):
        forget()
        file = package / f"{name}.py"
        file.write_text(file.read_text() + "\n# another version\n")
        assert "up to date" not in recsys("etl", config, "--trust", FOREIGN).out
    assert len(list(Path("workspace/data").iterdir())) == 3


def test_no_command_imports_an_untrusted_op(recsys):
    """Every command loads configs by the same function: tests/cli/test_foreign_code.py."""
    answer = recsys("etl", written(f"{FOREIGN}.scale:Scale"))
    assert answer.code == 2
    assert f"x.yaml:9: features.ops.2: '{FOREIGN}.scale:Scale' is code of a plugin and not trusted" in answer.err
    assert f"recsys --trust {FOREIGN}" in answer.err
    assert not Path("ran").exists()


def test_prepared_data_of_somebody_else_imports_no_op(recsys):
    assert recsys("etl", written(f"{FOREIGN}.scale:Scale"), "--trust", FOREIGN).code == 0
    forget()
    Path("ran").unlink()
    status = recsys("status", "--json")
    assert status.code == 0
    assert "not trusted" in status.json["current"]["problem"]
    for line in (["train"], ["etl"], ["report"]):
        answer = recsys(*line)
        assert answer.code == 2
        assert "not trusted" in answer.err
    assert not Path("ran").exists()


def test_an_entry_point_needs_no_trust(recsys, tmp_path):
    info = tmp_path / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[recsys.ops]\nscale = {FOREIGN}.scale:Scale\n")
    assert recsys("etl", written("scale")).code == 0
    assert max(prices()) == 1


@pytest.mark.parametrize(
    ("op", "rest", "message"),
    [
        pytest.param("scale:OnPolars", ["etl.engine=nvtabular"], "features.ops.2: OnPolars has no implementation for the engine "
         "nvtabular; its package declares: aggregator, polars", marks=pytest.mark.numpy1),
        ("scale:Unmade", [], "features.ops.2: Unmade has no implementation for the engine polars; its package declares: none"),
        pytest.param("scale:Scale", ["etl.engine=nvtabular"], "Scale: cannot load 'their_ops.scale.absent': ModuleNotFoundError",
         marks=pytest.mark.numpy1),
        ("scale:Plain", [], "'their_ops.scale:Plain' is not a subclass of recsys_cli.ops.foreign.ForeignOp"),
        ("scale:Absent", [], "cannot load 'their_ops.scale:Absent': AttributeError"),
        ("scale:Breaks", [], "the options of their_ops.scale:Breaks cannot be checked: KeyError: 'broken'"),
        ("scale:Scale", ["features.ops.2.colums=[a]"], "features.ops.2.colums: unknown key\n"),
    ],
)  # fmt: skip
def test_invalid_foreign_op_is_reported(recsys, op, rest, message):
    answer = recsys("etl", written(f"{FOREIGN}.{op}"), *rest, "--trust", FOREIGN)
    assert answer.code == 2, answer
    assert message in answer.err


REORDERS = "the op OnPolars (their_ops.scale.on_polars) changes the order of rows"
FAILS = "the op OnPolars (their_ops.scale.on_polars) failed: "


@pytest.mark.parametrize(
    ("apply", "message"),
    [
        ("return frame.reverse()", REORDERS),
        ("return frame.sort('price')", REORDERS),
        ("return frame.head(3)", "(their_ops.scale.on_polars) changes the number of rows from "),
        ("return pl.concat([frame, frame])", "(their_ops.scale.on_polars) changes the number of rows from "),
        ("return frame.select(op.columns)", "(their_ops.scale.on_polars) drops columns of other ops"),
        ("return frame.collect()", "(their_ops.scale.on_polars) returns DataFrame instead of a polars.LazyFrame"),
        ("return frame.select(pl.all(), pl.col('absent'))", f"{FAILS}ColumnNotFoundError"),
        ("1 / 0", f"{FAILS}ZeroDivisionError: division by zero"),
        ("raise SystemExit(0)", f"{FAILS}SystemExit: 0"),
    ],
)
def test_fault_of_a_foreign_op_names_it(recsys, package, apply, message):
    (package / "on_polars.py").write_text(f"{ON_POLARS}\ndef apply(op, state, frame):\n    {apply}\n")
    answer = recsys("etl", written(f"{FOREIGN}.scale:OnPolars"), "--trust", FOREIGN)
    assert answer.code == 2, answer
    assert message in answer.err


@pytest.mark.parametrize(
    ("file", "function", "message"),
    [
        (
            "on_polars",
            "def learn(op, frame, weight):\n    return {}",
            "(their_ops.scale.on_polars) returns no table 'price'",
        ),
        (
            "on_polars",
            "def learn(op, frame, weight):\n    1 / 0",
            "(their_ops.scale.on_polars) failed: ZeroDivisionError",
        ),
        (
            "on_polars",
            "del learn",
            "failed: AttributeError: module 'their_ops.scale.on_polars' has no attribute 'learn'",
        ),
        (
            "merging",
            "def merge(parts):\n    1 / 0",
            "the op OnPolars (their_ops.scale.merging) failed: ZeroDivisionError",
        ),
        ("merging", "def finalize(op, merged):\n    return {}", "(their_ops.scale.merging) returns no table 'price'"),
        (
            "__init__",
            "OnPolars.outputs = lambda op, inputs: 1 / 0",
            "their_ops.scale:OnPolars failed: ZeroDivisionError",
        ),
    ],
)
def test_fault_of_a_fitted_foreign_op_names_it(recsys, package, file, function, message):
    path = package / f"{file}.py"
    path.write_text(f"{path.read_text()}\n{function}\n")
    answer = recsys("etl", written(f"{FOREIGN}.scale:OnPolars"), "--trust", FOREIGN)
    assert answer.code == 2, answer
    assert message in answer.err


FILTER = "(their_ops.scale.even) "
BATCHES = """
import pyarrow as pa
from dataclasses import dataclass
from recsys_cli.ops.flow import Derived, Flow

@dataclass(frozen=True)
class Rows(Derived):
    rows: Flow
    def batches(self, columns=None):
        for batch in self.rows.batches(columns):
            yield %s

def choose(op, rows, context):
    return Rows(rows)
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            BATCHES % "batch.take(list(range(batch.num_rows))[::-1])",
            f"{FILTER}changes the order of rows, or repeats rows",
        ),
        (BATCHES % "pa.concat_tables([batch, batch])", f"{FILTER}changes the order of rows, or repeats rows"),
        (BATCHES % "1 / 0", f"{FILTER}failed: ZeroDivisionError"),
        (EVEN.replace("price", "absent"), f"{FILTER}failed: KeyError"),
        ("def choose(op, rows, context):\n    return None", f"{FILTER}returns NoneType instead of a Flow"),
        ("def choose(op, rows, context):\n    raise SystemExit", f"{FILTER}failed: SystemExit"),
    ],
)
def test_fault_of_a_foreign_filter_names_it(recsys, package, text, message):
    (package / "even.py").write_text(text)
    answer = recsys("etl", written_first(f"{FOREIGN}.scale:Even"), "--trust", FOREIGN)
    assert answer.code == 2, answer
    assert message in answer.err


def test_verbose_shows_the_traceback_of_a_plugin(recsys, package):
    (package / "on_polars.py").write_text(f"{ON_POLARS}\ndef apply(op, state, frame):\n    1 / 0\n")
    config = written(f"{FOREIGN}.scale:OnPolars")
    assert "Traceback" not in recsys("etl", config, "--trust", FOREIGN).err
    assert "on_polars.py" in recsys("etl", config, "--trust", FOREIGN, "--verbose").err


@pytest.mark.parametrize("module", ["os.path", "test.support", "recsys_cli.ops.clip", "pandas.io.common"])
def test_implementation_outside_the_package_is_refused(recsys, package, module):
    (package / "__init__.py").write_text(OPS.replace("their_ops.scale.on_polars", module))
    answer = recsys("etl", written(f"{FOREIGN}.scale:OnPolars"), "--trust", FOREIGN)
    assert answer.code == 2, answer
    assert f"features.ops.2: OnPolars names '{module}' as its polars, outside its package {FOREIGN}" in answer.err


def test_trusted_implementation_may_be_in_another_package(recsys, package):
    (package.parent.parent / "elsewhere.py").write_text(ON_POLARS)
    (package / "__init__.py").write_text(OPS.replace("their_ops.scale.on_polars", "elsewhere"))
    config = written(f"{FOREIGN}.scale:OnPolars")
    assert "not trusted" in recsys("etl", config, "--trust", FOREIGN).err
    answer = recsys("etl", config, "--trust", FOREIGN, "--trust", "elsewhere")
    assert answer.code == 0, answer.err


def test_implementation_may_be_in_another_package_of_the_distribution(recsys, package, tmp_path):
    (tmp_path / "elsewhere.py").write_text(ON_POLARS)
    (package / "__init__.py").write_text(OPS.replace("their_ops.scale.on_polars", "elsewhere"))
    info = tmp_path / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "top_level.txt").write_text(f"{FOREIGN}\nelsewhere\n")
    answer = recsys("etl", written(f"{FOREIGN}.scale:OnPolars"), "--trust", FOREIGN)
    assert answer.code == 0, answer.err
