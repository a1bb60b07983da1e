"""Column names with separators of paths, claims about times of data without times, and exports of exploded lists."""

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


def test_an_export_of_impressions_is_verified(folder):
    shown = [f"{user}\t" + " ".join(f"n{(user + n) % 9}-{int(n == user % 3)}" for n in range(3)) for user in range(40)]
    (folder / "shown.tsv").write_text("\n".join(shown))
    files = {"files": "shown.tsv", "separator": "\t", "names": ["user", "news"], "lists": {"news": " "}}
    impressions = {**files, "explode": "news", "clicks": "clicked"}
    ops = [{"op": "Categorify", "columns": ["user", "news"]}]
    features = {"user": "user", "item": "news", "label": "clicked", "ops": ops}
    dataset = {"name": "files", "interactions": impressions}
    model, train_options = {"name": "mf", "embedding_dim": 4}, {"epochs": 1, "device": "cpu"}
    values = {
        "dataset": dataset,
        "split": {"method": "random"},
        "features": features,
        "model": model,
        "train": train_options,
    }
    clicks, workspace = RunConfig.model_validate(values), Workspace(folder / "w")
    etl(clicks, workspace)
    assert export(train(clicks, workspace).artifact, workspace).verified == 120
