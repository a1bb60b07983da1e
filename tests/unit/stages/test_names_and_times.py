"""Column names with separators of paths, claims about times of data without times, and exports of exploded lists."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from recsys_cli.config import RunConfig
from recsys_cli.etl.report import Facts
from recsys_cli.events import Message
from recsys_cli.loader import DimensionTables
from recsys_cli.stages.etl import etl
from recsys_cli.stages.export import export
from recsys_cli.stages.train import train
from recsys_cli.workspace import Workspace

LISTS = {"files": "lists.txt", "separator": " ", "names": ["u:token", "i/item"], "lists": {"i/item": " "}}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lists = [f"{user} " + " ".join(str((user + n) % 9) for n in range(5)) for user in range(20)]
    (tmp_path / "lists.txt").write_text("\n".join(lists))
    (tmp_path / "items.csv").write_text("i/item,genre:token\n" + "".join(f"{n},g{n % 3}\n" for n in range(9)))
    return tmp_path


def config(split: str, *, order: str | None, timestamp: str | None) -> RunConfig:
    features = {
        "user": "u:token", "item": "i/item", "label": "one", **({"timestamp": timestamp} if timestamp else {}),
        "ops": [
            {"op": "JoinExternal", "table": "items", "on": "i/item", "columns": ["genre:token"]},
            {"op": "Categorify", "columns": ["u:token", "i/item", "genre:token"]},
            {"op": "LambdaOp", "expression": "1", "output": "one", "dtype": "int8"},
        ],
    }  # fmt: skip
    files = {**LISTS, "explode": "i/item", **({"order": order} if order else {})}
    dataset = {"name": "files", "interactions": files, "tables": {"items": "items.csv"}}
    return RunConfig.model_validate({"dataset": dataset, "split": {"method": split}, "features": features})


def test_dimension_tables_of_escaped_names_are_joined(folder):
    data = etl(config("random", order=None, timestamp=None), Workspace(folder / "w")).artifact
    assert set(DimensionTables(data).join({"i/item": torch.tensor([3])})) == {"i/item", "genre:token"}


@pytest.mark.parametrize(
    ("split", "order", "timestamp"), [("random", None, None), ("leave-last-out", "place", "place")]
)
def test_no_claim_about_times_without_times(folder, split, order, timestamp):
    events: list[object] = []
    found = etl(config(split, order=order, timestamp=timestamp), Workspace(folder / "w"), emit=events.append)
    said = [event.text for event in events if isinstance(event, Message)]
    said += [finding.text for finding in Facts.read(found.artifact.facts).findings]
    assert not [text for text in said if "later" in text]


@pytest.mark.parametrize("types", [{}, {"i/item": "int64"}])
@pytest.mark.parametrize("order", [None, "place"])
def test_an_export_of_exploded_lists_is_verified(folder, order, types):
    values = config("random", order=order, timestamp=order).model_dump()
    values["dataset"]["interactions"]["types"] = types
    values |= {"model": {"name": "ease"}}
    values["features"]["ops"] = values["features"]["ops"][1:]
    values["features"]["ops"][0]["columns"] = ["u:token", "i/item"]
    del values["dataset"]["tables"]
    exploded, workspace = RunConfig.model_validate(values), Workspace(folder / "w")
    etl(exploded, workspace)
    assert export(train(exploded, workspace).artifact, workspace).verified == 100


IMPRESSIONS = {
    "separator": "\t",
    "names": ["user", "item"],
    "lists": {"item": " "},
    "explode": "item",
    "clicks": "label",
}


def write_clicks(kind: str) -> dict:
    """Write clicks of 40 users on 9 items, and return their section of the config."""
    users, items = (np.repeat(np.arange(40), 3), np.tile(np.arange(9), 14)[:120])
    if kind == "impressions":
        shown = [
            f"{user}\t" + " ".join(f"n{(user + n) % 9}-{int(n == user % 3)}" for n in range(3)) for user in range(40)
        ]
        Path("t.tsv").write_text("\n".join(shown))
        return {"files": "t.tsv", **IMPRESSIONS}
    if kind == "a bad row":
        rows = [f"{user},{item},1\n" for user, item in zip(users, items, strict=True)]
        Path("t.csv").write_text("".join(["user,item,label\n", *rows, "1,2,3,4,5\n"]))
        return {"files": "t.csv"}
    absent = users % 10 == 0
    ids = np.where(absent, "", items.astype(str)) if kind == "empty texts" else np.where(absent, np.nan, items)
    pq.write_table(pa.table({"user": users, "item": ids, "label": np.ones(120, np.int8)}), "t.parquet")
    return {"files": "t.parquet"}


@pytest.mark.parametrize("kind", ["impressions", "a bad row", "empty texts", "NaN of floats"])
def test_an_export_is_verified_on_rows_as_the_etl_reads_them(folder, kind):
    values = {
        "dataset": {"name": "files", "interactions": write_clicks(kind)},
        "split": {"method": "random"},
        "features": {
            "user": "user", "item": "item", "label": "label", "ops": [{"op": "Categorify", "columns": ["user", "item"]}]
        },
        "etl": {"on_bad_rows": "skip"},
        "model": {"name": "mf", "embedding_dim": 4},
        "train": {"epochs": 1, "device": "cpu"},
    }  # fmt: skip
    clicks, workspace = RunConfig.model_validate(values), Workspace(folder / "w")
    etl(clicks, workspace)
    assert export(train(clicks, workspace).artifact, workspace).verified == 120
