"""`recsys tune` from the line to the table, the page and the next command."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from recsys_cli.cli import tune

pytest.importorskip("optuna")

SPACE = (
    "tune={pruning: none, space: {train.learning_rate: {low: 1e-6, high: 0.1, log: true}, "
    "model.hidden_dims: {choices: [[4], [8]]}}}"
)
LINE = ("tune", "ratings.yaml", SPACE, "train.epochs=1", "model.embedding_dim=4")


def test_tune_from_the_line_to_the_next_command(recsys, prepared):
    answer = recsys(*LINE, "--trials", "2")
    assert answer.code == 0, answer.err
    assert "trial 2 of 2: train.learning_rate=" in answer.err
    assert "best log_loss: " in answer.out
    assert "best of 2 finished trials by log_loss on valid, an optimistic estimate" in " ".join(answer.out.split())
    (study,) = Path("workspace/tune").iterdir()
    assert f"next: recsys train {study}/best.yaml" in answer.out
    assert (study / "tune.html").read_text().count("<svg") == 3
    found = recsys("tune", "--trials", "3", "--json").json  # the config of the last stage
    assert (found["study"], found["up_to_date"], found["trials"]["finished"]) == (study.name, False, 3)
    assert found["report"] == f"{study}/tune.html"
    assert found["caveat"].startswith("best of 3 finished trials by log_loss on valid")
    again = recsys("tune")
    assert "tuning is up to date: 3 of 3 trials" in again.out
    assert [entry["trials"]["finished"] for entry in recsys("status", "--json").json["studies"]] == [3]
    assert "train.learning_rate, model.hidden_dims" in recsys("status").out
    assert "training is up to date" in recsys("train", str(study / "best.yaml")).out


def test_search_needs_no_section(recsys, prepared):
    answer = recsys("tune", "ratings.yaml", "--trials", "1", "--minutes", "9", "model.name=item-knn")
    assert answer.code == 0, answer.err
    assert "model.shrinkage" in answer.out


def an_entry(trial: int, state: str, value: float | None, rank: int | None = None, **others: Any) -> dict[str, Any]:
    changes = {"train.learning_rate": 0.00123456 * trial, "model.hidden_dims": [64, 64]}
    return {
        "rank": rank, "trial": trial, "state": state, "value": value, "changes": changes, "overrides": "a=1 'b=[2, 3]'",
        "epochs": 3, "curve": [], "seconds": 61.2, "run": None, "message": None, **others,
    }  # fmt: skip


def test_the_table_shows_every_trial_and_the_line_to_paste():
    best = an_entry(2, "finished", 0.81234, rank=1)
    found = {
        "caveat": "which is optimistic",
        "up_to_date": False, "report": "w/tune/x/tune.html", "next": "recsys train w/tune/x/best.yaml",
        "metric": {"name": "auc", "better": "higher"}, "space": {"train.learning_rate": {}, "model.hidden_dims": {}},
        "combinations": None, "trials": {"wanted": 4, "finished": 1, "pruned": 1, "running": 1, "failed": 1}, "best": best,
        "ranking": [best, an_entry(3, "pruned", 0.5), an_entry(4, "running", None, seconds=None),
                    an_entry(1, "failed", None, message="the loss is not finite [1]")],
    }  # fmt: skip
    console = Console(width=120, record=True, file=io.StringIO())
    tune.draw(console, json.loads(json.dumps(found)))
    text = console.export_text()
    assert text.split()[:4] == ["rank", "trial", "auc", "train.learning_rate"]
    rows = [line.split() for line in text.splitlines()]
    assert ["1", "2", "0.8123", "0.002469", "[64,", "64]", "3", "61", "s", "finished"] in rows
    assert ["4", "–", "0.004938", "[64,", "64]", "3", "running"] in rows
    assert "trial 1 failed: the loss is not finite [1]" in text
    assert "best auc: 0.8123, trial 2: a=1 'b=[2, 3]'\nwhich is optimistic" in text


@pytest.mark.parametrize(
    ("combinations", "end"), [(None, "; --trials N adds more"), (4, ", all combinations of the search space")]
)
def test_an_exhausted_space_is_named(combinations, end):
    found = {
        "up_to_date": True, "report": "w/tune.html", "next": None, "metric": {"name": "auc"}, "space": {}, "best": None,
        "combinations": combinations, "ranking": [],
        "trials": {"wanted": 4, "finished": 3, "pruned": 1, "running": 0, "failed": 0},
    }  # fmt: skip
    console = Console(width=120, record=True, file=io.StringIO())
    tune.draw(console, found)
    assert f"tuning is up to date: 4 of 4 trials{end}\n" in console.export_text()
