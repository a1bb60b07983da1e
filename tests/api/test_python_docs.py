"""The code blocks of docs/python.md run as shown."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from recsys_cli.evaluation import Evaluation

DOCS = Path(__file__).resolve().parents[2] / "docs" / "python.md"


def ratings() -> pl.DataFrame:
    """Users 1 to 60 rate 30 of 40 movies; those of their own parity get 5 stars more often than others."""
    rng = np.random.default_rng(0)
    user, item = (part.ravel() for part in np.meshgrid(np.arange(1, 61), np.arange(1, 41), indexing="ij"))
    liked = np.where((user + item) % 2 == 0, 0.9, 0.2) > rng.random(len(user))
    frame = pl.DataFrame({"userId": user, "movieId": item, "rating": np.where(liked, 5, 2)})
    return frame.sample(1_800, shuffle=True, seed=1).with_columns(timestamp=pl.int_range(1_800))


def blocks() -> list[str]:
    """The Python code of the page."""
    return re.findall(r"```python\n(.*?)```", DOCS.read_text(), flags=re.DOTALL)


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The names defined by the blocks of the page."""
    names: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("notebook"))
        ratings().write_csv("ratings.csv")
        for block in blocks():
            exec(compile(block, str(DOCS), "exec"), names)
        names["cwd"] = Path.cwd()
    return names


def test_the_page_has_its_results(notebook: dict[str, Any]) -> None:
    assert isinstance(notebook["evaluation"], Evaluation)
    assert notebook["evaluation"].metrics["ndcg@10"].value > 0.1
    assert len(notebook["scores"]) == 100
    assert list(notebook["everyone"].columns) == ["user", "item", "rank", "score"]
    assert notebook["second"].folder.name != notebook["run"].folder.name


def test_the_first_example_has_at_most_ten_lines() -> None:
    assert len([line for line in blocks()[0].splitlines() if line]) <= 10


@pytest.mark.slow
def test_the_page_is_typed(tmp_path: Path) -> None:
    page = tmp_path / "page.py"
    shown = (
        "recsys.etl(config, workspace)",
        'evaluation.metrics["ndcg@10"].interval',
        "training.result",
        "evaluation.to_frame()",
    )
    page.write_text("\n".join([*blocks(), *(f"reveal_type({each})" for each in shown)]))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-pretty", str(page)],
        cwd=DOCS.parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "error" not in done.stdout, done.stdout
    revealed = re.findall(r'Revealed type is "(.*?)"', done.stdout)
    assert revealed == [
        "recsys_cli.api.data.PreparedData",
        "tuple[float, float] | None",
        "recsys_cli.api.run.TrainedRun",
        "polars.dataframe.frame.DataFrame",
    ]


def test_all_figures_are_in_the_frame(notebook: dict[str, Any]) -> None:
    evaluation = notebook["evaluation"]
    frame = evaluation.to_frame()
    assert evaluation._repr_html_().count("<tr>") == frame.height + 1
    assert frame.height == sum(map(len, evaluation.systems.values()))
    one = frame.row(by_predicate=(pl.col("system") == "model") & (pl.col("metric") == "ndcg@10"), named=True)
    assert (one["low"], one["high"]) == evaluation.metrics["ndcg@10"].interval
    assert_frame_equal(pl.from_arrow(evaluation.to_frame("arrow")), frame)  # type: ignore[arg-type]
