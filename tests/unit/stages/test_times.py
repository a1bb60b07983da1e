"""Times from raw files to histories: order of events, units, texts, and rows without a time."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_cli.cli.etl import result as etl_result
from recsys_cli.config import RunConfig
from recsys_cli.errors import ConfigError, DataError
from recsys_cli.etl.report import Facts
from recsys_cli.etl.report import page as report
from recsys_cli.evaluation.loaded_run import make_context
from recsys_cli.evaluation.names import newest_first, rows_of
from recsys_cli.events import Message
from recsys_cli.features.columns import ROW_NUMBER
from recsys_cli.features.schema import FIRST, Role
from recsys_cli.models.configs.matrix import PopularityConfig
from recsys_cli.models.matrix.popularity import Popularity
from recsys_cli.models.sequence.histories import Histories
from recsys_cli.stages import StageResult
from recsys_cli.stages.apply import apply
from recsys_cli.stages.etl import etl
from recsys_cli.workspace import PreparedData, Workspace
from tests.engines import every_engine, needs_all

START = datetime(2019, 10, 1, 2, 33, 16, tzinfo=UTC)
SECONDS = int(START.timestamp())
USERS, EACH = 7, 12
RNG = np.random.default_rng(5)


def events(rows: int = USERS * EACH) -> pa.Table:
    """Return events in time order: users alternate, and the items of a user are distinct."""
    users = [f"u{row % USERS}" for row in range(rows)]
    return pa.table({"user": users, "item": [f"i{row // USERS:03d}" for row in range(rows)], "label": [1] * rows})


def prepare(
    folder: Path,
    files: str | Mapping[str, Any],
    *,
    ops: Sequence[Mapping[str, Any]] = (),
    emit: Any = lambda _: None,
    **sections: Any,
) -> PreparedData:
    encode = {"op": "Categorify", "columns": ["user", "item"]}
    dataset = {"name": "files", "interactions": files}
    features = {"user": "user", "item": "item", "label": "label", "timestamp": "time", "ops": [*ops, encode]}
    config = RunConfig.model_validate({
        "dataset": dataset,
        "features": {**features, **sections.pop("features", {})},
        "split": sections.pop("split", {"method": "random", "valid": 0.0, "test": 0.0}),
        "etl": {"shard_rows": 16} | sections.pop("etl", {}),
        **sections,
    })  # fmt: skip
    return etl(config, Workspace(folder / "workspace"), emit=emit, force=True).artifact


def histories(data: PreparedData, *splits: str) -> dict[str, list[str]]:
    """Return the raw item sequence of each user."""
    users, items = (
        pq.read_table(data.vocabulary(data.schema.only(role).name))["value"].to_pylist()
        for role in (Role.USER, Role.ITEM)
    )
    found = Histories.of(
        make_context(data, *(splits or ("train",))).interactions(), num_users=len(users) + FIRST, positive_only=False
    )
    return {
        user: [items[item - FIRST] for item in found.items[found.offsets[at] : found.offsets[at + 1]].tolist()]
        for at, user in enumerate(users, start=FIRST)
    }


def in_order(rows: pa.Table) -> dict[str, list[str]]:
    made: dict[str, list[str]] = {}
    for row in rows.to_pylist():
        made.setdefault(row["user"], []).append(row["item"])
    return made


def shuffled(rows: pa.Table, seed: int = 3) -> pa.Table:
    return rows.take(pa.array(np.random.default_rng(seed).permutation(rows.num_rows)))


MOMENTS = np.arange(USERS * EACH)
CLOSE = {
    "1 ms apart, timestamp": pa.array(
        [START.replace(tzinfo=None) + timedelta(milliseconds=int(n)) for n in MOMENTS], pa.timestamp("ms")
    ),
    "1 µs apart, timestamp": pa.array(SECONDS * 10**6 + MOMENTS).cast(pa.timestamp("us")),
    "1 ns apart, timestamp": pa.array(SECONDS * 10**9 + MOMENTS).cast(pa.timestamp("ns")),
    "1 ms apart, whole numbers": pa.array(SECONDS * 1000 + MOMENTS),
    "1 ns apart, uint64": pa.array((SECONDS * 10**9 + MOMENTS).astype(np.uint64)),
    "10 ms apart, seconds with fractions": pa.array(SECONDS + MOMENTS / 100),
    "small fractions": pa.array(MOMENTS / 1000),
    "1 ms apart, ISO text": pa.array([
        (START + timedelta(milliseconds=int(n))).isoformat(timespec="milliseconds") for n in MOMENTS
    ]),
}  # fmt: skip


@pytest.mark.parametrize("form", ["parquet", "csv"])
@pytest.mark.parametrize("case", list(CLOSE))
def test_events_close_together_keep_their_order(case, form, tmp_path):
    rows = events().append_column("time", CLOSE[case])
    path = tmp_path / f"rows.{form}"
    write = pq.write_table if form == "parquet" else csv.write_csv
    write(shuffled(rows), path)
    assert histories(prepare(tmp_path, str(path))) == in_order(rows)


@pytest.mark.parametrize("split", ["random", "leave-last-out", "temporal"])
def test_equal_times_keep_the_order_of_the_files(split, tmp_path):
    rows = events().append_column("time", pa.array([SECONDS - SECONDS % 86400] * (USERS * EACH)))
    for part in range(3):  # a user spans files
        pq.write_table(rows.slice(part * 28, 28), tmp_path / f"part-{part}.parquet")
    sizes = {} if split == "leave-last-out" else {"valid": 0.2, "test": 0.2}
    data = prepare(tmp_path, str(tmp_path / "part-*.parquet"), split={"method": split, **sizes})
    whole = in_order(rows)
    assert histories(data, *(name for name in ("train", "valid", "test") if data.rows(name))) == {
        user: [item for item in items if item in known(data)] for user, items in whole.items()
    }
    if split == "leave-last-out":
        assert histories(data) == {user: items[:-2] for user, items in whole.items()}
    user = pq.read_table(data.vocabulary("user"))["value"].to_pylist().index("u3") + FIRST
    met = newest_first(rows_of(data, Role.USER, user), ("train", "valid", "test"))
    items = pq.read_table(data.vocabulary("item"))["value"].to_pylist()
    newest = [items[one.item_idx - FIRST] for one in met if one.item_idx >= FIRST]
    assert newest == [item for item in whole["u3"][::-1] if item in known(data)]


@pytest.mark.parametrize("filtered", [False, True])
def test_a_tie_seed_shuffles_histories_and_split_alike(filtered, tmp_path):
    rows = events().append_column("time", pa.array(SECONDS + np.arange(USERS * EACH) // 42))  # two times per user
    pq.write_table(rows, tmp_path / "rows.parquet")
    ops = [{"op": "Filter", "expression": "item != 'i001'"}] if filtered else []
    found = {}
    for seed in (1, 2):
        data = prepare(
            tmp_path, str(tmp_path / "rows.parquet"), ops=ops, split={"method": "leave-last-out", "tie_seed": seed}
        )
        held = {split: histories(data, split) for split in ("train", "valid", "test")}
        found[seed] = histories(data, "train", "valid", "test")
        assert found[seed] == {
            user: held["train"][user] + held["valid"][user] + held["test"][user] for user in held["train"]
        }
    for items in found[1].values():
        half = 6 - filtered
        assert set(items[:half]) <= {f"i{item:03d}" for item in range(6)}  # times keep their order
    assert found[1] != found[2]
    assert all(found[seed] != {user: sorted(items) for user, items in found[seed].items()} for seed in found)
    with pytest.raises(ValueError, match="shuffles rows with equal times"):
        prepare(
            tmp_path,
            str(tmp_path / "rows.parquet"),
            split={"method": "random", "tie_seed": 1},
            features={"timestamp": None},
        )


def known(data: PreparedData) -> set[str]:
    return set(pq.read_table(data.vocabulary("item"))["value"].to_pylist())


def test_rows_keep_their_number_where_ops_leave_rows_out(tmp_path):
    rows = events().append_column("time", pa.array([5] * (USERS * EACH)))
    rows = rows.append_column("keep", pa.array(RNG.integers(0, 3, rows.num_rows) > 0))
    pq.write_table(rows, tmp_path / "rows.parquet")
    data = prepare(tmp_path, str(tmp_path / "rows.parquet"), ops=[{"op": "Filter", "expression": "keep"}])
    assert histories(data) == in_order(rows.filter(rows["keep"]))


def test_row_numbers_run_on_over_given_files(tmp_path):
    rows = events().append_column("time", pa.array([5] * (USERS * EACH)))
    rows = rows.append_column("keep", pa.array([True] * rows.num_rows))
    pq.write_table(rows.slice(0, 56), tmp_path / "train.parquet")
    pq.write_table(rows.slice(56), tmp_path / "valid.parquet")
    split = {"method": "files", **{name: str(tmp_path / f"{name}.parquet") for name in ("train", "valid")}}
    for ops in ([], [{"op": "Filter", "expression": "keep"}]):
        data = prepare(tmp_path, str(tmp_path / "train.parquet"), ops=ops, split=split)
        assert histories(data, "train", "valid") == {
            user: [item for item in items if item in known(data)] for user, items in in_order(rows).items()
        }


def at(place: int) -> datetime:
    """Return the time of an event: five hours apart, to include all hours, and days above 12."""
    return START + timedelta(hours=5 * int(place))


TEXTS = {
    "2019-10-01 02:33:16 UTC": "%Y-%m-%d %H:%M:%S UTC",
    "11/14/2019 8:26:31 AM": "%-m/%-d/%Y %-I:%M:%S %p",
    "14.11.2019 8:26": "%-d.%-m.%Y %-H:%M",
    "2019-10-01T02:33:16Z": "%Y-%m-%dT%H:%M:%SZ",
    "2019-10-01 02:33:16.000000001": "%Y-%m-%d %H:%M:%S.000000001",
    "2019/10/01 02:33:16": "%Y/%m/%d %H:%M:%S",
    "Tue Oct 01 02:33:16 +0000 2019": "%a %b %d %H:%M:%S +0000 %Y",
    "Tue, 01 Oct 2019 02:33:16 GMT": "%a, %d %b %Y %H:%M:%S GMT",
    "01-Oct-2019 02:33:16": "%d-%b-%Y %H:%M:%S",
    "1569897196": "%s",
}


def times_of(data: PreparedData) -> list[float]:
    """Return the prepared times in seconds, in the order of the raw rows."""
    tables = [pq.read_table(path) for path in data.shards("train")]
    table = pa.concat_tables(tables).sort_by(ROW_NUMBER)
    return (table["time"].to_numpy() / data.schema.ticks).tolist()


@pytest.mark.parametrize("form", ["parquet", "csv"])
@pytest.mark.parametrize("example", list(TEXTS))
def test_texts_are_times(example, form, tmp_path):
    texts = [
        f"{at(place).timestamp():.0f}" if example.isdigit() else at(place).strftime(TEXTS[example]) for place in MOMENTS
    ]
    write = pq.write_table if form == "parquet" else csv.write_csv
    write(events().append_column("time", pa.array(texts)), tmp_path / f"rows.{form}")
    data = prepare(
        tmp_path, str(tmp_path / f"rows.{form}"), ops=[{"op": "LambdaOp", "expression": "hour(time)", "output": "hour"}]
    )
    seconds = [at(place).timestamp() for place in MOMENTS]
    expected = [second - second % 60 for second in seconds] if example.startswith("14.11") else seconds
    assert times_of(data) == pytest.approx(expected, abs=1e-6)
    hours = (
        pa.concat_tables([pq.read_table(path) for path in data.shards("train")]).sort_by(ROW_NUMBER)["hour"].to_pylist()
    )
    assert hours == [at(place).hour for place in MOMENTS]


@pytest.mark.parametrize(
    ("how", "text", "when"),
    [
        ("%d/%m/%Y", "01/02/2019", "2019-02-01T00:00:00+00:00"),
        ("%m/%d/%Y", "01/02/2019", "2019-01-02T00:00:00+00:00"),
        ("%Y-%d-%m", "2019-01-02", "2019-02-01T00:00:00+00:00"),
        ("%Y%m%d", "20190201", "2019-02-01T00:00:00+00:00"),
        ("%d.%m.%y %H:%M:%S.%f", "01.02.19 10:00:00.25", "2019-02-01T10:00:00.25+00:00"),
        ("%Y-%m-%d %H:%M %z", "2019-02-01 10:00 +0200", "2019-02-01T08:00:00+00:00"),
        ("iso", "2019-02-01 10:00:00+02:00", "2019-02-01T08:00:00+00:00"),
        ("ms", "1549015200250", "2019-02-01T10:00:00.25+00:00"),
        ("ms", "1549015200250.5", "2019-02-01T10:00:00.2505+00:00"),
        ("us", "5000000", "1970-01-01T00:00:05+00:00"),
        ("s", "1549015200250", None),
    ],
)
@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_an_option_says_how_times_are_written(how, text, when, form, tmp_path):
    rows = events(14).append_column("time", pa.array([text] * 14))
    (pq.write_table if form == "parquet" else csv.write_csv)(rows, tmp_path / f"rows.{form}")
    data = prepare(tmp_path, {"files": str(tmp_path / f"rows.{form}"), "times": {"time": how}})
    expected = float(text) if when is None else datetime.fromisoformat(when).timestamp()
    assert times_of(data) == pytest.approx([expected] * 14, abs=1e-6)


def test_a_day_that_may_be_a_month_is_refused(tmp_path):
    path = tmp_path / "rows.csv"
    csv.write_csv(events(14).append_column("time", pa.array(["01/02/2019 10:00"] * 14)), path)
    with pytest.raises(DataError, match="day and month are ambiguous") as caught:
        prepare(tmp_path, str(path))
    assert "%m/%d/%Y %H:%M" in str(caught.value.hint)
    assert "%d/%m/%Y %H:%M" in str(caught.value.hint)


@pytest.mark.parametrize("how", ["%d/%Z", "%H:%f", "sometimes", "%Q"])
def test_a_format_that_nothing_can_read_is_a_mistake_of_the_config(how, tmp_path):
    csv.write_csv(events(14).append_column("time", pa.array(["1"] * 14)), tmp_path / "rows.csv")
    with pytest.raises(ConfigError, match="times"):
        prepare(tmp_path, {"files": str(tmp_path / "rows.csv"), "times": {"time": how}})


BAD = {
    "whole": (["1569897196"], "soon"), "iso": (["2019-10-01 02:33:16"], "2019-13-01 02:33:16"),
    "utc": (["2019-10-01 02:33:16 UTC"], "2019-10-01 25:33:16 UTC"), "american": (["11/14/2019", "1/2/2019"], "14/14/2019"),
    "fraction": (["1569897196.25"], "1569897196,25"), "huge": (["1569897196"], "99999999999999999999999"),
}  # fmt: skip


@pytest.mark.parametrize("case", list(BAD))
def test_what_is_no_time_is_named_with_file_line_and_column(case, tmp_path):
    (good, bad), place = BAD[case], 50
    texts = [good[number % len(good)] for number in MOMENTS]
    texts[place] = bad
    csv.write_csv(events().append_column("time", pa.array(texts)), path := tmp_path / "rows.csv")
    with pytest.raises(DataError) as caught:
        prepare(tmp_path, str(path))
    assert f"{path}:{place + 2}: column time: {bad!r}" in caught.value.message
    data = prepare(tmp_path, str(path), etl={"on_bad_rows": "skip"})
    assert data.rows("train") == USERS * EACH - 1
    pq.write_table(events().append_column("time", pa.array(texts)), path := tmp_path / "rows.parquet")
    with pytest.raises(DataError, match=r"row .*, column time|column time cannot be read") as caught:
        prepare(tmp_path, str(path))
    assert str(path) in caught.value.message


def test_texts_that_are_no_times_at_all_are_refused(tmp_path):
    for form, write in (("csv", csv.write_csv), ("parquet", pq.write_table)):
        path = tmp_path / f"rows.{form}"
        write(events().append_column("time", pa.array(["yesterday"] * len(MOMENTS))), path)
        with pytest.raises(DataError, match="strings that are not times, such as 'yesterday'"):
            prepare(tmp_path, str(path))


def test_a_number_beyond_int64_is_refused(tmp_path):
    times = np.full(len(MOMENTS), SECONDS, np.uint64)
    times[5] = 2**64 - 1
    pq.write_table(events().append_column("time", pa.array(times)), tmp_path / "rows.parquet")
    with pytest.raises(DataError, match="column time"):
        prepare(tmp_path, str(tmp_path / "rows.parquet"))


SPLITS = [
    {"method": "random", "valid": 0.2}, {"method": "temporal", "valid": 0.2}, {"method": "leave-last-out"},
    {"method": "user", "valid": 0.3},
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "split"),
    [*(("null", split) for split in SPLITS), *((kind, SPLITS[1]) for kind in ("NaN", "infinite", "empty field"))],
)
def test_rows_without_a_time_are_refused_alike_by_every_split(kind, split, tmp_path):
    times: list[float | None] = [float(SECONDS + place) for place in MOMENTS]
    for place in (40, 60):
        times[place] = {"NaN": float("nan"), "infinite": float("inf")}.get(kind)
    rows = events().append_column("time", pa.array(times, pa.float64()))
    for part in range(3):
        form, write = ("csv", csv.write_csv) if kind == "empty field" else ("parquet", pq.write_table)
        write(rows.slice(part * 28, 28), tmp_path / f"part-{part}.{form}")
    with pytest.raises(DataError) as caught:
        prepare(tmp_path, str(tmp_path / f"part-*.{form}"), split=split)
    assert f"2 of 84 interactions have no time, the first is row 13 of {tmp_path}/part-1.{form}" in caught.value.message
    if kind != "infinite":
        data = prepare(
            tmp_path, str(tmp_path / f"part-*.{form}"), split=split, ops=[{"op": "Dropna", "columns": ["time"]}]
        )
        assert sum(data.rows(name) for name in ("train", "valid", "test")) == 82


def test_a_time_that_an_op_computes_may_not_be_missing(tmp_path):
    pq.write_table(events().append_column("when", pa.array([*[1.0] * 83, None])), tmp_path / "rows.parquet")
    with pytest.raises(DataError, match=r"1 of .* interactions have no time"):
        prepare(
            tmp_path,
            str(tmp_path / "rows.parquet"),
            ops=[{"op": "LambdaOp", "expression": "when * 2", "output": "time"}],
        )


def test_sampled_negatives_have_no_time_and_no_place_in_a_history(tmp_path):
    pq.write_table(events().append_column("time", pa.array(SECONDS + MOMENTS)), tmp_path / "rows.parquet")
    ops = [{"op": "Filter", "expression": "item != 'i003' or user == 'u1'"}]
    draw = {"op": "NegativeSampling", "user": "user", "item": "item", "num_negatives": 1, "output": "drawn"}
    ops += [draw, {"op": "LambdaOp", "expression": "1 - drawn", "output": "made", "dtype": "int8"}]
    data = prepare(tmp_path, str(tmp_path / "rows.parquet"), ops=ops, features={"label": "made"})
    assert data.rows("train") > USERS * EACH
    kept = in_order(events().filter(pc.or_(pc.not_equal(events()["item"], "i003"), pc.equal(events()["user"], "u1"))))
    assert histories(data) == kept


def test_a_report_of_times_that_span_more_than_63_bits(tmp_path):
    times = np.linspace(-(2.0**62.9), 2.0**62.9, len(MOMENTS)).astype(np.int64)
    times[0], times[-1] = -(2**63), 2**63 - 1
    pq.write_table(events().append_column("time", pa.array(times)), tmp_path / "rows.parquet")
    facts = Facts.read(prepare(tmp_path, str(tmp_path / "rows.parquet")).facts)
    assert facts.timeline is not None
    assert sum(facts.timeline.rows["train"]) == len(MOMENTS)
    assert facts.timeline.edges[0] == -(2**63)


def test_a_report_that_fails_costs_the_report_alone(tmp_path, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("no <rows>")

    pq.write_table(events().append_column("time", pa.array(SECONDS + MOMENTS)), tmp_path / "rows.parquet")
    whole = prepare(tmp_path / "whole", str(tmp_path / "rows.parquet"))
    monkeypatch.setattr(report, "gather_facts", broken)
    said: list[Any] = []
    data = prepare(tmp_path, str(tmp_path / "rows.parquet"), emit=said.append)
    assert [event.text for event in said if isinstance(event, Message) and event.level == "warning"] == [
        "the data is prepared, but its report failed: ZeroDivisionError: no <rows>; train goes on without it"
    ]
    assert data.rows("train") == whole.rows("train")
    assert [path.read_bytes() for path in data.shards("train")] == [path.read_bytes() for path in whole.shards("train")]
    assert etl_result(StageResult(data, up_to_date=False))["report"] is None


@pytest.mark.parametrize("name", ["Datum d. Käufe", "a.list.element", "t[0]\"'", "%", "{x}"])
def test_a_report_of_times_in_a_column_of_any_name(tmp_path, name):
    pq.write_table(events().append_column(name, pa.array(SECONDS + MOMENTS)), tmp_path / "rows.parquet")
    facts = Facts.read(prepare(tmp_path, str(tmp_path / "rows.parquet"), features={"timestamp": name}).facts)
    assert facts.timeline is not None


@every_engine
def test_units_of_time_mean_the_same_to_ops_and_engines(name, tmp_path):
    """Hours, windows, differences and histories do not depend on the unit."""
    moments = [at(place) + timedelta(microseconds=int(place)) for place in MOMENTS]
    micros = np.array(
        [int((moment - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(microseconds=1)) for moment in moments]
    )
    columns = {
        "us": pa.array(micros), "ns": pa.array(micros * 1000), "ms": pa.array(micros / 1000), "s": pa.array(micros / 10**6),
        "timestamp": pa.array(micros).cast(pa.timestamp("us")), "text": pa.array([moment.isoformat() for moment in moments]),
    }  # fmt: skip
    ops = [
        {"op": "TimeWindow", "column": "time", "after": "2019-10-02", "last": "5d"},
        {"op": "DifferenceLag", "columns": ["time"], "by": ["user"], "order_by": ["time"]},
        {"op": "LambdaOp", "expression": "hour(time) + 100 * weekday(time)", "output": "hour"},
    ]
    found = {}
    # Reading, which both engines share, leaves them integers and fractions: each kind once for the slow one.
    for unit in columns if name == "polars" else ("us", "ns", "s"):
        pq.write_table(events().append_column("time", columns[unit]), tmp_path / f"{unit}.parquet")
        data = prepare(tmp_path / unit, str(tmp_path / f"{unit}.parquet"), ops=ops, etl={"engine": name})
        rows = pa.concat_tables([pq.read_table(path) for path in data.shards("train")]).sort_by(ROW_NUMBER)
        hours, gaps = rows["hour"].to_pylist(), np.nan_to_num(rows["time_difference_lag_1"].to_numpy(), nan=-1.0)
        found[unit] = (hours, rows[ROW_NUMBER].to_pylist(), histories(data), times_of(data), gaps)
    first = found["us"]
    assert len(first[0]) == 24
    for unit, other in found.items():
        assert other[:3] == first[:3], unit
        assert other[3] == pytest.approx(first[3], abs=1e-6), unit
        assert other[4] == pytest.approx(first[4], abs=1e-2), unit


def test_dates_in_digits_stay_numbers(tmp_path):
    for digits in (20190201, 201902011000, 20190201100000):
        pq.write_table(events(14).append_column("time", pa.array([digits] * 14)), tmp_path / "rows.parquet")
        assert times_of(prepare(tmp_path, str(tmp_path / "rows.parquet"))) == [digits] * 14


@settings(max_examples=8)
@given(draw=st.data())
def test_any_times_in_any_form_order_histories_by_time_and_then_by_row(draw):
    size = draw.draw(st.integers(7, 40))
    micros = np.array(draw.draw(st.lists(st.integers(0, 25), min_size=size, max_size=size))) + SECONDS * 10**6
    rows = pa.table(
        {
            "user": [f"u{row % 3}" for row in range(size)],
            "item": [f"i{row:03d}" for row in range(size)],
            "label": [1] * size,
        }
    )
    files = draw.draw(st.integers(1, 3))
    times = draw.draw(st.sampled_from([
        pa.array(micros), pa.array(micros).cast(pa.timestamp("us")), pa.array(micros / 10**6), pa.array(micros.astype(np.uint64)),
        pa.array([f"{datetime.fromtimestamp(0, UTC) + timedelta(microseconds=int(m)):%Y-%m-%dT%H:%M:%S.%fZ}" for m in micros]),
    ]))  # fmt: skip
    form, write = draw.draw(st.sampled_from([("csv", csv.write_csv), ("parquet", pq.write_table)]))
    table, step = rows.append_column("time", times), -(-size // files)
    order = np.lexsort((np.arange(size), micros))
    with TemporaryDirectory() as folder:
        for part in range(files):
            write(table.slice(part * step, step), f"{folder}/part-{part}.{form}")
        how = draw.draw(st.sampled_from([{"shard_rows": 5}, {"shard_rows": 7, "memory_mib": 256}]))
        data = prepare(Path(folder), f"{folder}/part-*.{form}", etl=how)
        assert histories(data) == in_order(rows.take(pa.array(order)))


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_new_rows_are_read_as_those_that_the_plan_was_fitted_on(form, tmp_path):
    write = pq.write_table if form == "parquet" else csv.write_csv
    for case, times in {
        "american": pa.array([at(place).strftime("%m/%d/%Y %I:%M:%S %p") for place in MOMENTS]),
        "ms": pa.array([int(at(place).timestamp() * 1000) for place in MOMENTS]),
    }.items():
        path = tmp_path / f"{case}.{form}"
        write(events().append_column("time", times), path)
        data = prepare(tmp_path / case, str(path))
        output = tmp_path / case / "prepared.parquet"
        made = apply(str(data.folder), [str(path)], Workspace(tmp_path / case / "workspace"), output=output)
        new = pq.read_table(made.output)["time"].to_numpy() / data.schema.ticks
        assert new.tolist() == times_of(data) == [at(place).timestamp() for place in MOMENTS]


@needs_all
def test_engines_and_budgets_write_the_same_bytes(tmp_path):
    moments = [at(place // 5 * 5).strftime("%d.%m.%Y %H:%M") for place in MOMENTS]
    csv.write_csv(events().append_column("time", pa.array(moments)), tmp_path / "rows.csv")
    made = [
        prepare(tmp_path / str(number), str(tmp_path / "rows.csv"), etl=how, split={"method": "temporal"})
        for number, how in enumerate(
            [{"engine": "polars"}, {"engine": "nvtabular"}, {"engine": "polars", "memory_mib": 256}]
        )
    ]
    first, *others = (
        [path.read_bytes() for split in ("train", "valid") for path in data.shards(split)] for data in made
    )
    assert first
    assert all(other == first for other in others)


def test_recent_popularity_counts_seconds_in_every_unit(tmp_path):
    counts = []
    for unit, per_second in {"s": 1, "ms": 1000, "ns": 10**9}.items():
        times = pa.array([int(at(place).timestamp()) * per_second for place in MOMENTS])
        pq.write_table(events().append_column("time", times), tmp_path / f"{unit}.parquet")
        data = prepare(tmp_path / unit, str(tmp_path / f"{unit}.parquet"))
        model = Popularity(PopularityConfig(window=5 * 86400, half_life=86400), data.schema)
        model.fit(make_context(data, "train"))
        counts.append(model.counts.tolist())
    assert np.count_nonzero(counts[0]) < 12
    assert counts[1] == pytest.approx(counts[0])
    assert counts[2] == pytest.approx(counts[0])


@pytest.mark.parametrize("times", [np.resize([4.5, 12.99, 100.0], len(MOMENTS)), MOMENTS * 7.0, SECONDS + MOMENTS / 2])
def test_prices_as_times_are_a_warning(tmp_path, times):
    pq.write_table(events().append_column("price", pa.array(times)), tmp_path / "rows.parquet")
    data = prepare(tmp_path, str(tmp_path / "rows.parquet"), features={"timestamp": "price"})
    found = [one.text for one in Facts.read(data.facts).findings if "features.timestamp" in one.text]
    assert len(found) == (times[0] == 4.5)
    assert not found or "price has numbers from 4.5 to 100, and times are" in found[0]
