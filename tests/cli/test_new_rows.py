"""Rows that come later: `etl --apply` and `train --continue`."""

from pathlib import Path

import pyarrow.parquet as pq
from safetensors.numpy import load_file


def test_new_rows_are_prepared_and_counted(recsys, labelled):
    made = recsys("etl", "ratings.yaml", "etl.engine=polars", "--json").json
    new = labelled.with_name("new.csv")
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


def test_mistakes_are_named(recsys, labelled):
    nothing = recsys("etl", "--apply", "abc", labelled)
    assert (nothing.code, nothing.err.splitlines()[0]) == (
        3, "error: no run or prepared data 'abc' in workspace; there are: none yet",
    )  # fmt: skip
    assert recsys("etl", "--apply", "abc").code == 2
    assert "--out needs --apply" in recsys("etl", "ratings.yaml", "--out", "x.parquet").err
    made = recsys("etl", "ratings.yaml", "etl.engine=polars", "--json").json
    new = labelled.with_name("new.csv")
    new.write_text("user_id\nu1\n")
    lacking = recsys("etl", "--apply", made["path"], new)
    assert lacking.code == 4
    assert "no column item_id, required by item_id; the columns are user_id" in lacking.err


def test_run_continues_on_a_grown_table(recsys, labelled, tmp_path):
    recsys("-q", "etl", "ratings.yaml")
    first = recsys("--json", "train", "train.epochs=2", "train.device=cpu").json["run"]
    new = [f"n{row % 7},i{row % 20},{5 if row % 2 else 2},{2_000 + row},x" for row in range(400)]
    labelled.write_text(labelled.read_text() + "\n".join(new) + "\n")
    assert recsys("-q", "etl").code == 0
    answer = recsys("train", "--continue", first[:15])
    assert answer.code == 0
    told = " ".join((answer.out + answer.err).split())
    assert f"continuing {first}: " in told
    assert "user_id keeps 33 rows and gets 7 new ones" in told
    assert recsys("train", "--continue", first).out.count("up to date") == 1
    second = recsys("--json", "evaluate").json["run"]  # the config that was used last is that of the new run
    assert second != first
    tables = [
        load_file(tmp_path / "workspace" / "runs" / run / "checkpoints" / "best.safetensors")[
            "model.embeddings.tables.of_user_id.weight"
        ]
        for run in (first, second)
    ]
    assert [len(table) for table in tables] == [33, 40]


def test_missing_run_to_continue_lists_the_existing_ones(recsys, prepared):
    answer = recsys("train", "--continue", "nope")
    assert answer.code == 3
    assert "no run 'nope' in workspace; there are: none yet" in " ".join(answer.err.split())
