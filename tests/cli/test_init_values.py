"""`recsys init` on kinds of ids and times, names of columns, and tables without enough in them."""

import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from recsys_cli.config import load

ROWS = 200
SECONDS = range(1_600_000_000, 1_600_000_000 + 9_000 * ROWS, 9_000)


def write(head: str, row: Callable[[int, int, int], str], name: str = "t.csv") -> None:
    """Write rows of 20 users and 15 items in order of time."""
    lines = [row(k % 20, (7 * k + k // 20) % 15, second) for k, second in enumerate(SECONDS)]
    Path(name).write_text("\n".join([head, *lines]) + "\n")


def moment(second: int) -> datetime:
    return datetime.fromtimestamp(second, tz=UTC)


IDS: dict[str, Callable[[int], str]] = {
    "text": lambda n: f"Player One {n}",
    "uuid": lambda n: str(uuid.UUID(int=n)),
    "negative": lambda n: str(-1 - n),
    "above 2^53": lambda n: str(2**53 + n),
    "64 bits": lambda n: str(2**63 - 1 - n),
    "unsigned 64 bits": lambda n: str(2**64 - 1 - n),
    "leading zeros": lambda n: f"{n:06d}",
    "whole floats": lambda n: f"{n}.0",
}


@pytest.mark.parametrize("kind", IDS)
def test_ids_of_each_kind_stay_distinct(recsys, kind):
    write("user_id,item_id,timestamp", lambda u, i, t: f"{IDS[kind](u)},{IDS[kind](100 + i)},{t}")
    assert recsys("init", "t.csv", "--yes").code == 0
    made = recsys("--json", "etl", "t.yaml", "split.method=random", "features.timestamp=null")
    assert made.code == 0, made.err
    assert made.json["vocabularies"] == {"user_id": 20, "item_id": 15}


def test_unsigned_ids_of_parquet(recsys):
    users = pa.array([2**64 - 1 - k % 20 for k in range(ROWS)], pa.uint64())
    pq.write_table(pa.table({"user": users, "item": [k % 15 for k in range(ROWS)]}), "t.parquet")
    assert recsys("init", "t.parquet", "--yes").code == 0
    assert recsys("--json", "etl", "t.yaml").json["vocabularies"]["user"] == 20


TIMES: dict[str, Callable[[int], str]] = {
    "s": str,
    "ms": lambda t: str(t * 1_000),
    "µs": lambda t: str(t * 10**6),
    "ns": lambda t: str(t * 10**9),
    "fractions": lambda t: f"{t}.25",
    "iso": lambda t: f"{moment(t):%Y-%m-%d %H:%M:%S}",
    "utc": lambda t: f"{moment(t):%Y-%m-%dT%H:%M:%SZ}",
    "zone": lambda t: f"{moment(t):%Y-%m-%dT%H:%M:%S}+02:00",
    "date": lambda t: f"{moment(t):%Y-%m-%d}",
    "month first": lambda t: f"{moment(t):%m/%d/%Y}",
    "day first": lambda t: f"{moment(t):%d.%m.%Y %H:%M}",
    "12 hours": lambda t: f"{moment(t):%m/%d/%Y %I:%M:%S %p}",
}


@pytest.mark.parametrize("kind", TIMES)
def test_times_of_each_kind_split_by_time(recsys, kind):
    write("user,item,ordered", lambda u, i, t: f"{u},{i},{TIMES[kind](t)}")
    write("user,item,time", lambda u, i, t: f"{u},{i},{TIMES[kind](t)}", name="named.csv")
    answer = recsys("init", "named.csv", "--yes")
    assert answer.code == 0, answer.err
    config = load(Path("named.yaml"))
    assert (config.features.timestamp, config.split.method) == ("time", "temporal")
    assert recsys("etl", "named.yaml").code == 0
    assert recsys("init", "t.csv", "--yes").code == 0
    assert load(Path("t.yaml")).features.timestamp == "ordered"


def test_an_order_takes_the_place_of_a_time(recsys):
    write("shopper_id,sku,step", lambda u, i, t: f"{u},{i},{t - SECONDS[0]}")
    assert recsys("init", "t.csv", "--yes").code == 0
    config = load(Path("t.yaml"))
    assert (config.features.timestamp, config.split.method) == ("step", "leave-last-out")
    assert "the last row by step is test" in Path("t.yaml").read_text()


def test_sessions_without_a_time_follow_the_order_of_the_rows(recsys):
    Path("t.csv").write_text("session_id,item_id\n" + "".join(f"s{k // 4},{k * 7 % 15}\n" for k in range(ROWS)))
    assert recsys("init", "t.csv", "--yes").code == 0
    config = load(Path("t.yaml"))
    assert (config.features.timestamp, config.split.method) == ("position", "session")
    assert recsys("etl", "t.yaml").code == 0


@pytest.mark.parametrize(
    ("head", "user", "item"),
    [
        ("shopper_id,product_code", "shopper_id", "product_code"),
        ("customer,sku", "customer", "sku"),
        ("reviewerID,asin", "reviewerID", "asin"),
        ("Kunde,Artikel", "Kunde", "Artikel"),
        ("household_key,PRODUCT_ID", "household_key", "PRODUCT_ID"),
        ("profileId,aid", "profileId", "aid"),
    ],
)
def test_names_of_shops(recsys, head, user, item):
    write(f"{head},bought_at", lambda u, i, t: f"{u},P{i},{moment(t):%Y-%m-%d}")
    answer = recsys("init", "t.csv", "--yes")
    assert answer.code == 0, answer.err
    features = load(Path("t.yaml")).features
    assert (features.user, features.item, features.timestamp) == (user, item, "bought_at")


@pytest.mark.parametrize(
    ("head", "row", "message"),
    [
        ("user,item", "1,2", "have one user (1)"),
        ("user,item", "{u},2", "have one item (2)"),
        ("user,item", "{two},{two}", "repeat 2 pairs"),
    ],
)
def test_cold_cases_are_refused(recsys, head, row, message):
    write(head, lambda u, i, _: row.format(u=u, i=i, two=u % 2))
    answer = recsys("init", "t.csv", "--yes")
    assert answer.code == 2
    assert message in answer.err
    assert not Path("t.yaml").exists()


@pytest.mark.parametrize(("column", "positive"), [("liked", "yes"), ("clicked", "true")])
def test_labels_in_words_become_positive_rows(recsys, column, positive):
    negative = {"yes": "no", "true": "false"}[positive]
    write(f"user,item,{column}", lambda u, i, _: f"{u},{i},{positive if (u + i) % 3 else negative}")
    assert recsys("init", "t.csv", "--yes").code == 0
    assert recsys("etl", "t.yaml").code == 0
    assert load(Path("t.yaml")).features.labels[0] in {"label", column}


def test_a_few_unreadable_rows_are_skipped_and_named(recsys):
    write("user,item,timestamp", lambda u, i, t: f"{u},{i},{t}")
    with Path("t.csv").open("a") as lines:
        lines.write("1,2,yesterday\n")
    answer = recsys("init", "t.csv", "--yes")
    assert answer.code == 0, answer.err
    assert "'yesterday'" in answer.out.replace("\n", " ")
    config = load(Path("t.yaml"))
    assert (config.features.timestamp, config.etl.on_bad_rows) == ("timestamp", "skip")
    assert sum(recsys("--json", "etl", "t.yaml").json["rows"].values()) == ROWS


def test_a_config_that_fails_is_not_written(recsys):
    for name, moment_of in (("a.csv", str), ("b.csv", TIMES["iso"])):
        write("user,item,timestamp", lambda u, i, t, how=moment_of: f"{u},{i},{how(t)}", name=name)
    pq.write_table(pa.table({"user": [1, 2], "item": ["a", "b"], "rating": [1.0, 2.0]}), "a.parquet")
    pq.write_table(pa.table({"user": [1, 2], "item": ["a", "b"], "stars": [1.0, 2.0]}), "b.parquet")
    answer = recsys("init", "?.parquet", "--yes", "--rating", "rating", "-o", "t.yaml")
    assert answer.code == 0  # two tables, of which one is used
    answer = recsys("init", "?.csv", "--yes", "-o", "u.yaml")
    assert answer.code == 4
    assert "no config written, because it would fail" in answer.err
    assert not list(Path.cwd().glob("*u.yaml*"))


@pytest.mark.parametrize(("value", "ending"), [("inf", "csv"), ("inf", "parquet"), ("nan", "parquet")])
def test_a_rating_without_a_finite_value_is_refused(value, ending, recsys, tmp_path):
    """An infinite one would move the threshold of positive rows, and in Parquet NaN is a number."""
    users, items = [user for user in range(30) for _ in range(10)], [(7 * row) % 23 for row in range(300)]
    ratings = [float(value), *((row % 5) + 1.0 for row in range(1, 300))]
    table = tmp_path / f"scores.{ending}"
    (pq.write_table if ending == "parquet" else csv.write_csv)(
        pa.table({"user": users, "item": items, "rating": ratings}), table
    )
    answer = recsys("init", table)
    assert answer.code == 4
    assert "1 of 300 values of the rating column rating are infinite or NaN" in answer.err
    assert not (tmp_path / "scores.yaml").exists()
