"""`recsys feedback` writes a table like the interactions of a config, for the next preparation of both."""

import datetime
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest

from recsys_cli.serving.feedback.state import COMMIT, Event
from tests.cli.conftest import Answer

START = datetime.datetime(2024, 3, 1)
TIME = 1_717_200_007.0
AT = datetime.datetime(2024, 6, 1, 0, 0, 7)
ETL = "dataset.interactions=[t.{0},workspace/feedback/interactions.{0}]"


def rows(kind: str) -> pl.DataFrame:
    """Ratings with seconds, events with a type and text ids, or purchases with a price; the last two with datetimes."""
    draw, made = random.Random(3), []
    for number in range(2_000):
        user = draw.randint(1, 60)
        item, at = user % 5 * 10 + draw.randint(1, 14), START + datetime.timedelta(minutes=10 * number)
        action = draw.choices(["view", "cart", "purchase"], [80, 12, 8])[0]
        made.append({
            "ratings": {"user_id": user, "movie": item, "stars": draw.randint(1, 5), "ts": 1_700_000_000 + 600 * number},
            "events": {"visitor": f"v{user}", "sku": f"p{item}", "action": action, "at": at},
            "purchases": {"customer": f"c{user}", "bought_at": at, "price": draw.random(), "product": item},
        }[kind])  # fmt: skip
    return pl.DataFrame(made)


EVENTS: dict[str, Sequence[Event]] = {
    "ratings": (Event("put", 1, 3, 31, 2.0, TIME), Event("put", 2, 4, 32, None, TIME + 5)),
    "events": (
        Event("put", 1, "v3", "p31", None, TIME, "purchase"), Event("put", 2, "v3", "p31", None, TIME + 5, "purchase"),
        Event("put", 3, "v4", "p32", None, TIME + 9),
    ),
    "purchases": (Event("put", 1, "c3", 31, None, TIME), Event("put", 2, 'new,"c"', 32, 1.0, TIME + 5, "purchase")),
}  # fmt: skip
WRITE: dict[str, Callable[[pl.DataFrame, str], Any]] = {
    "csv": pl.DataFrame.write_csv,
    "parquet": pl.DataFrame.write_parquet,
    "jsonl": pl.DataFrame.write_ndjson,
}


def log(events: Sequence[Event]) -> None:
    """Write the log of a server."""
    (folder := Path("workspace/feedback")).mkdir(parents=True)
    (folder / "000000.worker-0.jsonl").write_bytes(b"".join(event.line() for event in events) + COMMIT)


def ok(answer: Answer) -> Answer:
    assert answer.code == 0, answer.err
    return answer


def prepared(*columns: str) -> list[tuple[Any, ...]]:
    """Return the last rows of all splits of the latest preparation, in order of time."""
    data = max(Path("workspace/data").iterdir(), key=lambda path: path.stat().st_mtime)
    parts = [pq.read_table(path) for path in sorted(data.glob("*/*.parquet")) if path.parent.name in SPLITS]
    found = [row for part in parts for row in zip(*(part[name].to_pylist() for name in columns), strict=True)]
    return sorted(found, key=lambda row: row[-1])


SPLITS = ("train", "valid", "test")


@pytest.mark.parametrize("form", WRITE)
@pytest.mark.parametrize("kind", EVENTS)
def test_the_table_is_like_the_interactions_and_part_of_the_next_preparation(kind, form, recsys):
    table = rows(kind)
    WRITE[form](table, f"t.{form}")
    ok(recsys("init", f"t.{form}", "--out", "c.yaml", "--yes"))
    log(EVENTS[kind])
    like = {"ratings": ("--like", "5"), "events": ("--like", "view"), "purchases": ()}[kind]
    ok(recsys("feedback", "--config", "c.yaml", *like))
    written = Path(f"workspace/feedback/interactions.{form}")
    if form == "parquet":
        assert pl.read_parquet(written).schema == table.schema
    elif form == "csv":
        assert written.read_text().splitlines()[0] == ",".join(table.columns)
    ok(recsys("-q", "etl", "c.yaml", ETL.format(form)))
    value, time = {
        "ratings": ("label", "ts"), "events": ("row_weight", "at"), "purchases": ("label", "bought_at")
    }[kind]  # fmt: skip
    found = prepared(value, time)
    assert len(found) == 2_000 + len(EVENTS[kind])
    new = found[-len(EVENTS[kind]) :]
    assert [row[0] for row in new] == {"ratings": [0, 1], "events": [5.0, 5.0, 1.0], "purchases": [1, 1]}[kind]
    ticks = 10 ** (len(str(new[0][1])) - 10)
    assert [row[1] / ticks for row in new] == [event.time for event in EVENTS[kind]]


@pytest.mark.parametrize(
    ("text", "options", "line"),
    [
        ("u;i;r;when\n", "separator: ';', decimal: ',', times: {when: '%d.%m.%Y %H:%M:%S'}", "3;31;4,5;01.06.2024 00:00:07"),
        ("", "separator: '::', names: [u, i, r, when, x]", "3::31::4.5::1717200007::"),
        ("", "separator: '\\s+', names: [u, i, r, when, x]", "3 31 4.5 1717200007 NA"),
        ("when\tr\tx\ti\tu\n", "separator: \"\\t\"", "1717200007000\t4.5\t\t31\t3"),
    ],
)  # fmt: skip
def test_text_is_in_the_dialect_of_the_interactions(text, options, line, recsys):
    names = ["when", "r", "x", "i", "u"] if "\t" in text else ["u", "i", "r", "when", "x"]
    lines = []
    for number in range(300):
        at = AT - datetime.timedelta(minutes=number)
        seconds = int(at.replace(tzinfo=datetime.UTC).timestamp())
        values = {
            "u": str(number % 20), "i": str(number * 7 % 30), "x": "a", "r": "3,5" if ";" in text else "3.5",
            "when": f"{at:%d.%m.%Y %H:%M:%S}" if ";" in text else str(seconds * (1_000 if "\t" in text else 1)),
        }  # fmt: skip
        separator = "\t" if "\t" in text else ";" if ";" in text else "::" if "::" in options else "  "
        lines.append(separator.join(values[name] for name in names if name != "x" or ";" not in text))
    Path("t.dat").write_text(text + "\n".join(lines) + "\n")
    Path("c.yaml").write_text(
        f"""
dataset: {{name: files, interactions: {{files: t.dat, {options}}}}}
features:
  user: u
  item: i
  label: {{name: r, task: regression}}
  timestamp: when
  ops: [{{op: Categorify, columns: [u, i]}}]
split: {{method: random, valid: 0.1, test: 0.1}}
model: {{name: mf}}
"""
    )
    log([Event("put", 1, 3, 31, 4.5, TIME)])
    ok(recsys("feedback", "--config", "c.yaml"))
    assert Path("workspace/feedback/interactions.dat").read_text() == f"{text}{line}\n"
    ok(recsys("-q", "etl", "c.yaml", "dataset.interactions.files=[t.dat,workspace/feedback/interactions.dat]"))
    found = prepared("r", "when")
    assert len(found) == 301
    assert found[-1][0] == 4.5 or (4.5, found[-1][1]) in found


@pytest.mark.parametrize(
    ("form", "line"),
    [("csv", "c3,31,2024-06-01 00:00:07+00:00"), ("jsonl", '{"customer": "c3", "items": [31]}')],
)
def test_times_with_a_zone_and_lists_of_items_stay_what_they_are(form, line, recsys):
    draw, lines = random.Random(1), ["customer,product,at"] if form == "csv" else []
    for number in range(600):
        customer, at = f"c{number % 50}", START + datetime.timedelta(hours=number)
        items = [draw.randint(1, 40) for _ in range(4)]
        basket = {"customer": f"c{number}", "items": items, "at": 1_700_000_000 + number}
        lines.append(f"{customer},{items[0]},{at.isoformat()}+00:00" if form == "csv" else json.dumps(basket))
    Path(f"t.{form}").write_text("\n".join(lines) + "\n")
    ok(recsys("init", f"t.{form}", "--out", "c.yaml", "--yes"))
    log(EVENTS["purchases"][:1])
    ok(recsys("feedback", "--config", "c.yaml"))
    assert Path(f"workspace/feedback/interactions.{form}").read_text().splitlines()[-1] == line
    key = "dataset.interactions" if form == "csv" else "dataset.interactions.files"
    ok(recsys("-q", "etl", "c.yaml", f"{key}=[t.{form},workspace/feedback/interactions.{form}]"))


def test_the_config_is_that_of_the_last_stage_and_columns_come_before_it(recsys):
    rows("events").with_columns(pl.col("at").dt.replace_time_zone("UTC")).write_parquet("t.parquet")
    ok(recsys("init", "t.parquet", "--out", "c.yaml", "--yes"))
    ok(recsys("-q", "etl", "c.yaml"))
    log(EVENTS["events"])
    refused = recsys("feedback")
    assert (refused.code, "--like view" in refused.err) == (2, True)
    ok(recsys("feedback", "--like", "view"))
    written = pl.read_parquet("workspace/feedback/interactions.parquet")
    assert written["at"].to_list()[0] == AT.replace(tzinfo=datetime.UTC)
    ok(recsys("feedback", "--columns", "a,b,,c,d", "--like", "view", "--time-unit", "ms"))
    assert Path("workspace/feedback/interactions.csv").read_text().splitlines()[1] == "v3,p31,1717200007000,purchase"


def test_a_value_that_does_not_fit_its_column_is_refused(recsys):
    rows("purchases").write_parquet("t.parquet")
    ok(recsys("init", "t.parquet", "--out", "c.yaml", "--yes"))
    log([Event("put", 1, "c3", "a book", None, TIME)])
    refused = recsys("feedback", "--config", "c.yaml")
    assert refused.code == 2
    assert "no int64 for product" in refused.err


def test_a_label_of_two_columns_needs_the_names(recsys):
    rows("ratings").with_columns(other=pl.col("stars")).write_csv("t.csv")
    ok(recsys("init", "t.csv", "--out", "c.yaml", "--yes"))
    text = Path("c.yaml").read_text()
    Path("c.yaml").write_text(text.replace("expression: stars > 3", "expression: stars + other > 6"))
    log(EVENTS["ratings"])
    refused = recsys("feedback", "--config", "c.yaml")
    assert refused.code == 2
    assert "user_id; movie; other, stars; ts" in refused.err
    assert "--columns" in refused.err


def test_feedback_of_a_shop_has_a_quantity_and_no_dislikes(recsys):
    draw = random.Random(5)
    sales = rows("purchases").with_columns(quantity=pl.Series([draw.choice([1, 2, 6, -1]) for _ in range(2_000)]))
    sales.write_csv("t.csv")
    ok(recsys("init", "t.csv", "--out", "c.yaml", "--yes"))
    assert "expression: quantity > 0" in Path("c.yaml").read_text()
    log((*EVENTS["purchases"], Event("put", 3, "c5", 31, 0.0, TIME + 7), Event("put", 4, "c5", 32, -1.0, TIME + 8)))
    answer = ok(recsys("feedback", "--config", "c.yaml", "--like", "1"))
    assert "2 rows; 2 with a label of 0 or less left out" in answer.out
    ok(recsys("-q", "etl", "c.yaml", ETL.format("csv")))
    found = prepared("row_weight", "bought_at")
    assert len(found) == 2 + sales.filter(pl.col("quantity") > 0).height
    assert [round(row[0], 4) for row in found[-2:]] == [0.6931] * 2


def test_a_filter_of_a_column_without_feedback_is_named(recsys):
    rows("purchases").write_csv("t.csv")
    ok(recsys("init", "t.csv", "--out", "c.yaml", "--yes"))
    text = Path("c.yaml").read_text()
    Path("c.yaml").write_text(text.replace("  ops:\n", "  ops:\n    - {op: Filter, expression: price > 0.1}\n"))
    log(EVENTS["purchases"])
    answer = ok(recsys("feedback", "--config", "c.yaml"))
    assert "no price, read by Filter 'price > 0.1'; fill it, or recsys etl may drop the 2 rows" in answer.out
