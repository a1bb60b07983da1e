"""`recsys init` on decimal commas, JSON lines, partitioned folders, parts with other columns, and times as numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from recsys_cli.detect import understand
from recsys_cli.errors import ConfigError

ROWS = 300
SECONDS = 1_735_700_000


def understood(
    path: Path, head: str, row: Callable[[int, int, int], str], name: str = "t.csv"
) -> tuple[str, dict[str, str]]:
    """Write rows of 17 users and 13 items in order of time; return the config and the column of each role."""
    lines = [head, *(row(k % 17, k * 7 % 13, SECONDS + 3_600 * k) for k in range(ROWS))]
    (path / name).parent.mkdir(exist_ok=True)
    (path / name).write_text("\n".join(lines) + "\n")
    found = understand([str(path / name)], {})
    return found.text("x.yaml"), {role: one.column for role, one in found.interactions.roles.items()}


def test_decimal_commas_between_semicolons_or_in_quotes(tmp_path: Path) -> None:
    text, roles = understood(tmp_path, "shopper_id;sku;price;ts", lambda u, i, t: f"u{u};s{i};{i},99;{t}")
    assert roles == {"user": "shopper_id", "item": "sku", "timestamp": "ts"}
    assert "separator: ;" in text
    assert "separator: ;" in understood(tmp_path, "0;1;2;3,5", lambda u, i, t: f"{u};{i};{i},99;4,{u % 5}")[0]
    assert "decimal: ','" in understood(tmp_path, "user,item,rating", lambda u, i, t: f'{u},{i},"{u % 5},5"')[0]
    assert "decimal:" not in understood(tmp_path, "user,item,price", lambda u, i, t: f'{u},{i},"{i + 1},500"')[0]


@pytest.mark.parametrize(
    ("head", "row", "absent"),
    [
        ("user,item,tags,ts", lambda u, i, t: f"u{u},s{i},a;b;c;d;e;f,{t}", "separator"),
        ("user,item,ts", lambda u, i, t: f'"x,{u}","y,{i}",{t}', "lists"),
    ],
    ids=["lists between semicolons", "ids with a comma"],
)
def test_separators_within_a_column_are_none_of_the_table(
    tmp_path: Path, head: str, row: Callable[[int, int, int], str], absent: str
) -> None:
    assert f"{absent}:" not in understood(tmp_path, head, row)[0]


@pytest.mark.parametrize("ticks", [1, 1_000, 1_000_000])
def test_clocks_of_any_name_are_the_time(tmp_path: Path, ticks: int) -> None:
    _, roles = understood(tmp_path, "user,item,t", lambda u, i, t: f"{u},{i},{t * ticks}")
    assert roles["timestamp"] == "t"
    _, roles = understood(tmp_path, "user,item,shop_id", lambda u, i, t: f"{u},{i},{t * ticks}")
    assert "timestamp" not in roles


def test_coded_hours_are_the_time(tmp_path: Path) -> None:
    text, roles = understood(
        tmp_path,
        "click,hour,site,device",
        lambda u, i, t: f"{int(u * i % 3 == 0)},{14102100 + t // 3_600 % 24},s{u},d{i}",
    )
    assert roles["timestamp"] == "hour"
    assert "LogOp" not in text


def test_json_lines_named_json(tmp_path: Path) -> None:
    _, roles = understood(
        tmp_path, json.dumps({"user": 1, "item": 2, "ts": SECONDS}),
        lambda u, i, t: json.dumps({"user": u, "item": i, "ts": t}), "reviews.json",
    )  # fmt: skip
    assert roles == {"user": "user", "item": "item", "timestamp": "ts"}


def test_a_partitioned_folder_is_one_table_with_its_columns(tmp_path: Path) -> None:
    for month in ("month=2025-01", "month=2025-02"):
        understood(tmp_path, "user,item,ts", lambda u, i, t: f"{u},{i},{t}", f"{month}/part.csv")
    found = understand([str(tmp_path)], {})
    assert f"interactions: {tmp_path}" in found.text("x.yaml")
    assert "month" in found.interactions.columns
    assert found.interactions.sample.rows.num_rows == 2 * ROWS


def test_parts_with_other_columns_or_formats_are_refused(tmp_path: Path) -> None:
    understood(tmp_path, "account,track,ts", lambda u, i, t: f"{u},{i},{t}", "plays/a.csv")
    (tmp_path / "plays/b.csv").write_text((tmp_path / "plays/a.csv").read_text().replace("account", "acct"))
    with pytest.raises(ConfigError, match="not by all: account, acct"):
        understand([str(tmp_path / "plays")], {})
    (tmp_path / "plays/b.csv").unlink()
    pq.write_table(pyarrow.csv.read_csv(tmp_path / "plays/a.csv"), tmp_path / "plays/b.parquet")
    with pytest.raises(ConfigError, match="by their columns, but not by their format"):
        understand([str(tmp_path / "plays")], {})


def test_parts_with_columns_in_another_order_are_one_table(tmp_path: Path) -> None:
    understood(tmp_path, "account,track,ts", lambda u, i, t: f"{u},{i},{t}", "plays/a.csv")
    understood(tmp_path, "ts,track,account", lambda u, i, t: f"{t},{i},{u}", "plays/b.csv")
    sample = understand([str(tmp_path / "plays")], {}).interactions.sample
    halves = [sample.rows.slice(first, ROWS).to_pydict() for first in (0, ROWS)]
    assert halves[0] == halves[1]


@pytest.mark.parametrize("character", ["\x85", "\u2028", "\x0b"])
def test_only_line_ends_end_a_line(tmp_path: Path, character: str) -> None:
    """In Windows-1252, byte 85 is an ellipsis; Python's `splitlines` divides the line there."""
    lines = [f"{k % 17},{k * 7 % 13},Wait{character} what,{SECONDS + k}" for k in range(ROWS)]
    (tmp_path / "t.csv").write_bytes(
        "\n".join(["user,item,title,ts", *lines]).encode("utf-8" if character == "\u2028" else "latin-1")
    )
    found = understand([str(tmp_path / "t.csv")], {})
    assert found.interactions.sample.rows.num_rows == ROWS
    assert found.task is not None


def test_the_folder_itself_names_the_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    understood(tmp_path, "user,item,ts", lambda u, i, t: f"{u},{i},{t}", "month=2025-01/part.csv")
    monkeypatch.chdir(tmp_path)
    assert understand(["."], {}).config_name == f"{tmp_path.name}.yaml"


def test_tags_are_no_part_of_the_ratings(tmp_path: Path) -> None:
    understood(tmp_path, "user,item,rating,ts", lambda u, i, t: f"{u},{i},{1 + u % 5},{t}", "plays/ratings.csv")
    understood(tmp_path, "user,item,tag,ts", lambda u, i, t: f"{u},{i},funny,{t}", "plays/tags.csv")
    assert [one.sample.name for one, _ in understand([str(tmp_path / "plays")], {}).unused] == ["tags"]


def test_titles_before_links(tmp_path: Path) -> None:
    understood(tmp_path, "user,item,ts", lambda u, i, t: f"{u},{i},{t}", "plays/plays.csv")
    items = range(13)
    (tmp_path / "plays/links.csv").write_text("item,code\n" + "".join(f"{i},{900 + i}\n" for i in items))
    (tmp_path / "plays/movies.csv").write_text("item,title\n" + "".join(f"{i},Film No {i}\n" for i in items))
    found = understand([str(tmp_path / "plays")], {})
    assert [one.table.sample.name for one in found.joined] == ["movies"]


def test_a_first_line_without_end_is_too_long_not_empty(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a" * 300_000 + ",item\n1,2\n")
    with pytest.raises(ConfigError, match=r"t\.csv: the first line is longer than 262,144 bytes"):
        understand([str(tmp_path / "t.csv")], {})
    (tmp_path / "t.csv").write_text("\n \n")
    with pytest.raises(ConfigError, match="is empty"):
        understand([str(tmp_path / "t.csv")], {})


def test_a_heading_amid_the_rows_is_named_with_the_types_that_leave_it_out(tmp_path: Path) -> None:
    rows = [f"u{k % 17},{k * 7 % 13},{k % 5 + 0.5}" for k in range(ROWS)]
    (tmp_path / "t.csv").write_text("\n".join(["user,item,rating", *rows[:200], "user,item,rating", *rows[200:]]))
    notes = understand([str(tmp_path / "t.csv")], {}).notes
    assert any(
        "item in item, rating in rating" in note and "types: {item: int64, rating: float64}" in note for note in notes
    )
    (tmp_path / "t.csv").write_text("\n".join(["user,item,rating", *rows]))
    assert not any("text among numbers" in note for note in understand([str(tmp_path / "t.csv")], {}).notes)
