"""`recsys init` on tables as programs write them: row numbers, missing values, floats as ids, decimal commas, sorted files."""

import gzip
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from recsys_cli.config import RunConfig, load
from recsys_cli.workspace import Workspace
from tests.cli.conftest import Recsys

ROWS = 400


def write(head: str, row: Callable[[int, int, int], str], name: str = "t.csv", rows: int = ROWS) -> None:
    """Write rows of 20 users and 15 items; `row` gets the row number, the user and the item."""
    lines = [row(k, k % 20, (7 * k + k // 20) % 15) for k in range(rows)]
    Path(name).write_text("\n".join([head, *lines]) + "\n")


def proposed(recsys: Recsys, name: str = "t.csv") -> tuple[RunConfig, list[str]]:
    """Return the config of `init` and its notes."""
    answer = recsys("--json", "init", name, "--yes", "--force", "-o", "t.yaml")
    assert answer.code == 0, answer.err
    return load(Path("t.yaml")), answer.json["notes"]


def vocabulary(recsys: Recsys, column: str = "user") -> list[object]:
    """Return the ids of a column after `recsys etl`."""
    answer = recsys("etl", "t.yaml")
    assert answer.code == 0, answer.err
    (data,) = Workspace(Path("workspace")).all_data()
    (file,) = (data.folder / "vocab").glob(f"{column}*.parquet")
    values: list[object] = pq.read_table(file).column(0).to_pylist()
    return values


@pytest.mark.parametrize("first", ["", "Unnamed: 0", '""'])
def test_the_row_number_of_pandas_is_no_user(recsys, first):
    write(f"{first},user,item,rating", lambda k, u, i: f"{k},{u},{i},{1 + k % 5}")
    config, notes = proposed(recsys)
    assert (config.features.user, config.features.item) == ("user", "item")
    assert any("number of the row" in note for note in notes)
    assert recsys("etl", "t.yaml").code == 0


@pytest.mark.parametrize("missing", ["NA", "NULL", "None", r"\N", "nan", ""])
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_texts_of_missing_values_are_no_users(recsys, missing, suffix):
    write("user,item,rating", lambda k, u, i: f"{f'u{u}' if u else missing},{i},{1 + k % 5}")
    if suffix == "parquet":
        text = pyarrow.csv.ConvertOptions(strings_can_be_null=False)
        pq.write_table(pyarrow.csv.read_csv("t.csv", convert_options=text), "t.parquet")
    config, notes = proposed(recsys, f"t.{suffix}")
    assert [op.columns for op in config.features.ops if op.name == "Dropna"] == [("user",)]
    assert any(note.startswith("20 of 400 rows have no user in column user") for note in notes)
    assert sorted(map(str, vocabulary(recsys))) == sorted(f"u{u}" for u in range(1, 20))


def test_na_is_a_real_value_where_the_table_says_so(recsys):
    write("user,item,rating", lambda k, u, i: f"{f'u{u}' if u else 'NA'},{i},{1 + k % 5}")
    proposed(recsys)
    Path("t.yaml").write_text(
        Path("t.yaml").read_text().replace("interactions: t.csv", "interactions: {files: t.csv, nulls: []}")
    )
    assert "NA" in vocabulary(recsys)


def test_whole_numbers_as_floats_are_ids_without_a_fraction(recsys):
    write("user,item,rating", lambda k, u, i: f"{'' if k == 7 else f'{u + 16764}.0'},{i}.0,{1 + k % 5}")
    proposed(recsys)
    assert sorted(vocabulary(recsys)) == list(range(16764, 16784))  # type: ignore[type-var]


def test_decimal_commas_are_numbers(recsys):
    write("user;item;rating", lambda k, u, i: f"{u};{i};{k % 9 // 2},{'05'[k % 9 % 2]}")
    config, _ = proposed(recsys)
    assert config.dataset.options["interactions"] == {"files": "t.csv", "separator": ";", "decimal": ","}
    assert any("rating > 3" in text for op in config.features.ops for text in op.expressions.values())
    assert recsys("etl", "t.yaml").code == 0


def test_a_repeated_name_in_the_header_is_an_error(recsys):
    write("user,item,rating,rating", lambda k, u, i: f"{u},{i},{1 + k % 5},{k % 2}")
    answer = recsys("init", "t.csv", "--yes")
    assert answer.code == 2
    assert "t.csv: the header names rating twice" in answer.err


@pytest.mark.parametrize(
    ("how", "rows"), [("csv", 700_000), ("csv", 290_000), ("parquet", 700_000), ("csv.gz", 700_000), ("parts", 700_000)]
)
def test_labels_that_change_at_the_end_of_a_large_table_are_seen(recsys, how, rows):
    lines = [f"{k % 500},{k * 7 % 90},{int(k < (0.7 if how == 'parts' else 0.95) * rows)}\n" for k in range(rows)]
    text, name = "user,item,label\n" + "".join(lines), f"t.{how}"
    if how == "csv.gz":
        Path(name).write_bytes(gzip.compress(text.encode(), 1))
    elif how == "parts":
        name = "part-*.csv.gz"
        for part in range(4):
            rest = "".join(lines[part * rows // 4 : (part + 1) * rows // 4])
            Path(f"part-{part}.csv.gz").write_bytes(gzip.compress(f"user,item,label\n{rest}".encode(), 1))
    else:
        Path("t.csv").write_text(text)
        if how == "parquet":
            pq.write_table(pyarrow.csv.read_csv("t.csv"), name, row_group_size=100_000)
    config, _ = proposed(recsys, name)
    assert config.features.labels[0] == "label"
    assert not any("label" in op.expressions for op in config.features.ops)


@pytest.mark.parametrize("line", [2, 5, 300])
def test_an_open_quote_is_named_by_its_line(recsys, line):
    write("user,item,rating", lambda k, u, i: f"{u},{chr(34) * (k == line - 2)}{i},{1 + k % 5}")
    assert f"t.csv:{line}: a quote opens a field here" in recsys("init", "t.csv", "--yes").err


def test_names_of_many_columns_are_counted(recsys):
    names = [f"f{number}" for number in range(3_000)]
    write(
        ",".join(["user", "item", *names]),
        lambda k, u, i: ",".join([str(u), str(i), *(str(k % 9) for _ in names)]),
        rows=60,
    )
    answer = recsys("init", "t.csv", "--yes")
    assert answer.code == 0, answer.err
    assert "and 2,950 more" in answer.out
    assert len(answer.out) < 10_000
    assert "f29 and 2,970 more" in Path("t.yaml").read_text()
    write(",".join(names), lambda k, u, i: ",".join(str(k % 9) for _ in names), rows=60)
    assert "f29 and 2,970 more" in recsys("init", "t.csv", "--yes").err


@pytest.mark.parametrize(
    "deep", ["[" * 101 + "]" * 101, '{"a":' * 101 + "1" + "}" * 101, '{"a":' * 9_000 + "1" + "}" * 9_000]
)
def test_deeply_nested_json_is_an_error_before_it_is_parsed(recsys, deep):
    flat = json.dumps({"user": 1, "item": 2, "text": "[" * 200})
    Path("t.jsonl").write_text(f"{flat}\n" + f'{flat[:-1]}, "x": {deep}}}\n' * 30)
    answer = recsys("init", "t.jsonl", "--yes")
    assert answer.code == 4
    assert "t.jsonl:2: lists or objects of more than 100 levels" in answer.err


def test_nested_events_are_named_with_the_query_that_reads_them(recsys):
    shown = [[{"aid": (3 * s + k) % 15, "ts": 1_600_000_000 + 60 * s + k} for k in range(4)] for s in range(60)]
    events = (json.dumps({"by": {"os": "x"}, "session": {"id": s}, "events": shown[s]}) for s in range(60))
    Path("t.jsonl").write_text("\n".join(events) + "\n")
    answer = recsys("init", "t.jsonl", "--yes")
    assert answer.code == 2
    assert "the column events has lists of objects (aid, ts), which are not read" in answer.err
    query = re.search(r"recsys init (.*)", answer.err)
    assert query is not None
    assert recsys("init", *shlex.split(query[1]), "--yes", "-o", "t.yaml").code == 0
    assert (load(Path("t.yaml")).features.user, load(Path("t.yaml")).features.item) == ("session_id", "aid")


@pytest.mark.parametrize(
    ("scale", "threshold"),
    [
        ((0, 1, 2, 3), "rating > 1.8"),
        ((1, 2, 3), "rating > 2.2"),
        ((1, 2, 3, 4, 5), "rating > 3"),
        ((*(1,) * 30, *(2,) * 9, 5), "rating > 1"),
        ((-1, 2, 4, 6, 8, 10), "rating > 6"),
    ],
)
def test_the_threshold_follows_the_ratings(recsys, scale, threshold):
    write("user,item,rating", lambda k, u, i: f"{u},{i},{scale[k % len(scale)]}")
    config, notes = proposed(recsys)
    assert threshold in [text for op in config.features.ops for text in op.expressions.values()]
    filters = [op for op in config.features.ops if op.name == "Filter"]
    assert len(filters) == (-1 in scale)
    assert [note for note in notes if "-1 stands for no rating" in note] == [
        "features.ops keep the rows with rating != -1: -1 stands for no rating" for _ in filters
    ]
    rows = recsys("--json", "etl", "t.yaml").json["rows"]
    assert sum(rows.values()) == sum(scale[k % len(scale)] >= 0 for k in range(ROWS))


@pytest.mark.parametrize(
    ("head", "more"),
    [
        ("CustomerID,StockCode,Quantity", ""),
        ("InvoiceNo,StockCode,Quantity", ""),
        ("user,StockCode,units,rating", ",{}"),
    ],
)
def test_returns_are_no_purchases_whatever_the_task(recsys, head, more):
    write(head, lambda k, u, i: f"{u}.0,S{i},{-3 if k % 4 == 0 else 1 + k % 7}{more.format(1 + k % 5)}")
    config, notes = proposed(recsys)
    count, why = head.split(",")[2], "negative counts are returns; the purchases before them stay positive"
    assert config.features.ops[0].title == f"Filter '{count} > 0'"
    assert f"features.ops keep the rows with {count} > 0: {why}" in notes
    assert (config.features.weight == "row_weight") is (more == "" and config.split.method != "session")
    assert sum(recsys("--json", "etl", "t.yaml", "split={method: random}").json["rows"].values()) <= ROWS * 3 // 4


def test_cancelled_invoices_are_no_purchases(recsys: Recsys) -> None:
    write("InvoiceNo,CustomerID,StockCode", lambda k, u, i: f"{'' if k % 5 else 'C'}{536_000 + k // 3},{u},S{i}")
    _, notes = proposed(recsys)
    assert "features.ops keep the rows with InvoiceNo < 'C': invoices with a C before the number are cancelled" in notes
    prepared = recsys("--json", "etl", "t.yaml", "split={method: random}").json
    assert sum(prepared["rows"].values()) <= ROWS * 4 // 5


@pytest.mark.parametrize("model", ["ease", "mlp"])
def test_a_train_split_without_positive_rows_is_an_error_before_training(recsys, model):
    write("user,item,rating", lambda k, u, i: f"{u},{i},{1 + k % 5}")
    proposed(recsys)
    Path("t.yaml").write_text(Path("t.yaml").read_text().replace("rating > 3", "rating > 5"))
    answer = recsys("run", "t.yaml", f"model.name={model}")
    assert answer.code == 4
    assert "no row of train is positive: label is 0 in all" in answer.err


def test_unclear_columns_are_named(recsys):
    write("user,item,rating,seen", lambda k, u, i: f'{u},"{i}{chr(34) * (k != 9)},5,{1 + k % 9}/7/2019 6:34')
    notes = "1 of 399 values of item have a line break: .* rating has one value .5. in .*seen may be a time"
    assert re.search(notes, str(proposed(recsys)[1]))
