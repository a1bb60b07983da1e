"""Column names with separators of paths, and claims about times of data without times."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from recsys_cli.config import RunConfig
from recsys_cli.etl.report import Facts
from recsys_cli.events import Message
from recsys_cli.loader import DimensionTables
from recsys_cli.stages.etl import etl
from recsys_cli.workspace import Workspace

LISTS = {"files": "lists.txt", "separator": " ", "names": ["u:token", "i/item"], "lists": {"i/item": " "}}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
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


def test_dimension_tables_of_escaped_names_are_joined(folder: Path) -> None:
    data = etl(config("random", order=None, timestamp=None), Workspace(folder / "w")).artifact
    assert set(DimensionTables(data).join({"i/item": torch.tensor([3])})) == {"i/item", "genre:token"}


@pytest.mark.parametrize(
    ("split", "order", "timestamp"), [("random", None, None), ("leave-last-out", "place", "place")]
)
def test_no_claim_about_times_without_times(folder: Path, split: str, order: str | None, timestamp: str | None) -> None:
    events: list[object] = []
    found = etl(config(split, order=order, timestamp=timestamp), Workspace(folder / "w"), emit=events.append)
    said = [event.text for event in events if isinstance(event, Message)]
    said += [finding.text for finding in Facts.read(found.artifact.facts).findings]
    assert not [text for text in said if "later" in text]
