"""The Polars engine with etl.device=gpu, tested without a GPU by a fake engine."""

from __future__ import annotations

import pickle
import tempfile
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings

from recsys_cli.errors import DataError, MissingExtraError
from recsys_cli.etl import engine as engines
from recsys_cli.etl.engine import choose, satisfies
from recsys_cli.etl.polars_engine import Gpu, PolarsEngine, Unit, check_counts
from recsys_cli.events import Event, Message
from recsys_cli.ops.plan import FeaturePlan
from tests.engines import answer
from tests.strategies import Case, cases

UNSUPPORTED = "Query execution with GPU not possible: unsupported operations.\nThe errors were:\n- NotImplementedError: python_udf"
CASE = Case(
    {
        "train": pa.table({
            "user": ["a", "b", None, "a"], "item": [1.5, float("nan"), -0.0, 1.5], "tags": [["x"], [], None, ["y", "x"]],
            "rating": [1.0, 2.0, 3.0, 4.0],
        }),
        "valid": pa.table({"user": ["b", "z"], "item": [0.0, 9.0], "tags": [["q"], ["y"]], "rating": [1.0, 2.0]}),
    },
    {},
    FeaturePlan.model_validate({"user": "user", "item": "item", "label": "label", "ops": [
        {"op": "Categorify", "columns": ["user", "item", "tags"]},
        {"op": "LambdaOp", "expression": "rating > 2", "output": "label"},
    ]}),
)  # fmt: skip


class Fake:
    """Fake of cudf-polars: runs queries on the CPU, except those with Python functions."""

    def __init__(self, **options: Any) -> None:
        assert options == {"executor": "in-memory", "raise_on_fail": True}
        self.queries = 0


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace the GPU engine by the fake; the list has the plans of its queries."""
    ran: list[str] = []
    collect = pl.LazyFrame.collect

    def collected(query: pl.LazyFrame, **options: Any) -> pl.DataFrame:
        if not isinstance(options.get("engine"), Fake):
            return collect(query, **options)
        if "python_udf" in query.explain().lower() or "map_batches" in query.explain().lower():
            raise NotImplementedError(UNSUPPORTED)
        ran.append(query.explain())
        return collect(query, engine="in-memory")

    monkeypatch.setattr(pl.LazyFrame, "collect", collected)
    monkeypatch.setattr(pl, "GPUEngine", Fake)
    return ran


def texts(events: list[Event]) -> list[str]:
    assert all(isinstance(event, Message) and event.level == "warning" for event in events)
    return [event.text for event in events if isinstance(event, Message)]


def test_results_equal_the_cpu_and_fallbacks_are_reported_once(fake: list[str], tmp_path: Path) -> None:
    told: list[Event] = []
    made = answer("polars", CASE, tmp_path / "gpu", device="gpu", emit=told.append)
    assert made.files() == answer("polars", CASE, tmp_path / "cpu").files()
    assert texts(told) == ["Categorify of lists or with buckets runs on the CPU: NotImplementedError: python_udf"]
    assert any("JOIN" in plan for plan in fake), "values are encoded by a join"
    assert any("AGGREGATE" in plan for plan in fake), "and counted by a group-by"


def test_without_cudf_polars_everything_falls_back_to_the_cpu(tmp_path: Path) -> None:
    told: list[Event] = []
    made = answer("polars", CASE, tmp_path / "gpu", device="gpu", emit=told.append)
    assert made.files() == answer("polars", CASE, tmp_path / "cpu").files()
    assert len(texts(told)) == len(set(texts(told)))
    assert {text.partition(" runs")[0] for text in texts(told)} == {
        "fitting Categorify", "Categorify", "Categorify of lists or with buckets", "LambdaOp",
    }  # fmt: skip


@settings(max_examples=25, derandomize=True)
@given(cases())
def test_categorify_by_joins_is_categorify(case: Case) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        expected = answer("polars", case, Path(folder) / "cpu").files()
        patch.setattr(pl, "GPUEngine", lambda **_: "in-memory")
        told: list[Event] = []
        assert answer("polars", case, Path(folder) / "gpu", device="gpu", emit=told.append).files() == expected
        assert not told


def test_row_order_of_the_gpu_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pl, "GPUEngine", lambda **_: "in-memory")
    shuffled = Unit("Shuffle", lambda frame: frame.reverse())
    frame = pl.DataFrame({"a": [1, 2, 3]})
    assert Gpu().apply([shuffled], frame)["a"].to_list() == [1, 2, 3]


def test_a_result_with_missing_rows_is_rejected(fake: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Event] = []
    device = Gpu(told.append)
    lossy = Unit("Lossy", lambda frame: frame.head(2) if len(fake) == 0 else frame)
    made = device.apply(
        [lossy, Unit("Double", lambda frame: frame.with_columns(pl.col("a") * 2))], pl.DataFrame({"a": [1, 2, 3]})
    )
    assert made["a"].to_list() == [2, 4, 6]


def test_failed_parts_are_not_retried_on_the_gpu(fake: list[str]) -> None:
    told: list[Event] = []
    device = Gpu(told.append)
    own = Unit("Own", lambda frame: frame.with_columns(pl.col("a").map_batches(lambda a: a + 1, return_dtype=pl.Int64)))
    double = Unit("Double", lambda frame: frame.with_columns(pl.col("a") * 2))
    for _ in range(2):
        assert device.apply([double, own, double], pl.DataFrame({"a": [1, 2]}))["a"].to_list() == [6, 10]
    assert texts(told) == ["Own runs on the CPU: NotImplementedError: python_udf"]


def test_an_error_of_the_data_is_that_of_the_cpu(fake: list[str]) -> None:
    with pytest.raises(pl.exceptions.InvalidOperationError, match="conversion"):
        Gpu().apply(
            [Unit("Cast", lambda frame: frame.with_columns(pl.col("a").cast(pl.Int8)))], pl.DataFrame({"a": [999]})
        )


def test_an_engine_in_another_process_has_no_listener(tmp_path: Path) -> None:
    engine = PolarsEngine(tmp_path, device="gpu", emit=lambda event: None)
    assert pickle.loads(pickle.dumps(engine)).device == "gpu"


def test_counts_that_do_not_add_up_are_an_error() -> None:
    counts = pa.table({"value": ["a", None], "count": pa.array([2, 1], pa.int64())})
    check_counts("user", counts, 3)
    with pytest.raises(DataError, match="counting user gave 3 values instead of 4"):
        check_counts("user", counts, 4)


def installed(monkeypatch: pytest.MonkeyPatch, packages: dict[str, str], needs: str = "polars<1.45,>=1.35") -> None:
    def version(package: str) -> str:
        if package not in packages:
            raise PackageNotFoundError(package)
        return packages[package]

    monkeypatch.setattr(engines, "version", version)
    monkeypatch.setattr(engines, "installed", packages.get)
    monkeypatch.setattr(engines, "requires", lambda package: ["nvtx>=0.2.1", needs, 'rich; extra == "test"'])


def test_a_missing_extra_is_named_with_its_install_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    installed(monkeypatch, {"polars": "1.44.0"})
    for name in ("polars", "auto"):
        with pytest.raises(MissingExtraError, match=r"etl\.device=gpu needs the 'gpu' extra") as raised:
            choose(name, tmp_path, device="gpu")
        assert raised.value.hint == "pip install 'recsys-cli[gpu]'"


def test_a_cudf_polars_for_other_releases_of_polars_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, {"cudf-polars-cu12": "26.10.0", "polars": "2.1.0"})
    error = PolarsEngine.missing("gpu")
    assert error is not None
    assert "cudf-polars-cu12 26.10.0 needs polars<1.45,>=1.35, but 2.1.0 is installed" in error.message
    assert PolarsEngine.missing("cpu") is None


def test_auto_takes_polars_on_either_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    installed(monkeypatch, {"cudf-polars-cu13": "26.10.0", "polars": "1.44.0"})
    for device in ("cpu", "gpu"):
        name, engine = choose("auto", tmp_path, device=device)
        assert (name, engine.device) == ("polars", device)


@pytest.mark.parametrize(
    ("release", "wanted", "answer"),
    [
        ("1.44.0", ">=1.35,<1.45", True), ("1.45", "<1.45,>=1.35", False), ("2.1.0", ">=1.35,<1.45", False),
        ("1.35.0rc1", ">=1.35", True), ("1.36.1", "==1.36.1", True), ("1.36.2", "!=1.36.2", False), ("1.40.2", "~=1.36", True),
        ("2.0", "~=1.36", False), ("3", "", True), ("1.36", ">1.36", False), ("1.36", "<=1.36", True),
    ],
)  # fmt: skip
def test_requirements_are_understood(release: str, wanted: str, answer: bool) -> None:
    assert satisfies(release, wanted) is answer
