"""`recsys etl --apply`: files in place of a config, output, exit codes."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from tests.cli.conftest import Recsys


def test_new_rows_are_prepared_and_counted(recsys: Recsys, ratings: Path) -> None:
    assert recsys("init", ratings, "--task", "label").code == 0
    made = recsys("etl", "ratings.yaml", "etl.engine=polars", "--json").json
    new = ratings.with_name("new.csv")
    new.write_text("device,item_id,user_id\nx,i3,u1\nx,i99,nobody\n")

    shown = recsys("etl", "--apply", made["path"], new, "etl.engine=polars")
    assert shown.code == 0
    assert "2 rows prepared with polars: new.prepared.parquet" in shown.out
    assert "label is omitted: the new rows have no rating" in shown.out
    assert "50.0" in shown.out

    key = Path(made["path"]).name[:6]
    found = recsys("etl", new, "--apply", key, "-o", "other.parquet", "--json").json
    assert (found["rows"], found["left_out"]["label"]) == (2, ["rating"])
    assert found["missing"]["item_id"] == {"null": 0, "unseen": 1, "values": 2}
    assert found["columns"]["user_id"]["kind"] == "categorical"
    assert pq.read_table("other.parquet").equals(pq.read_table("new.prepared.parquet"))


def test_mistakes_are_named(recsys: Recsys, ratings: Path) -> None:
    nothing = recsys("etl", "--apply", "abc", ratings)
    assert (nothing.code, nothing.err.splitlines()[0]) == (
        3, "error: no run or prepared data 'abc' in workspace; there are: none yet",
    )  # fmt: skip
    assert recsys("etl", "--apply", "abc").code == 2
    assert "--output needs --apply" in recsys("etl", "ratings.yaml", "--output", "x.parquet").err
    recsys("init", ratings, "--task", "label")
    made = recsys("etl", "ratings.yaml", "etl.engine=polars", "--json").json
    new = ratings.with_name("new.csv")
    new.write_text("user_id\nu1\n")
    lacking = recsys("etl", "--apply", made["path"], new)
    assert lacking.code == 4
    assert "no column item_id, required by item_id; the columns are user_id" in lacking.err
