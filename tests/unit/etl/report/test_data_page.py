"""The data page opens offline in a real browser with all tables and figures."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recsys_cli.config import load
from recsys_cli.etl.report import Facts
from recsys_cli.stages.download import download
from recsys_cli.stages.etl import etl
from recsys_cli.workspace import PreparedData, Workspace
from tests.browser import see

CONFIGS = Path(__file__).resolve().parents[4] / "configs"
HEADINGS = ["Splits", "Repeated pairs", "Fitted on train only", "Ops", "Missing values", "Popularity and activity"]
OPS = (
    {"op": "Filter", "expression": "label >= 0"},
    {"op": "JoinExternal", "table": "tags", "on": "item", "columns": ["tags", "price"]},
    {"op": "Categorify", "columns": ["user", "item", "tags"]},
)


@pytest.fixture
def page(prepare: Callable[..., PreparedData]) -> str:
    rows = [(n % 17 + 9 * (n // 95), n % 4 or None, float(n % 3 - 1), 1_500_000_000 + 86_400 * n) for n in range(100)]
    data = prepare(rows, *OPS, split={"method": "temporal", "valid": 0.2, "test": 0.1})
    return data.report.read_text(encoding="utf-8")


def test_page_shows_every_section_and_figure(page: str) -> None:
    assert re.findall(r"<h2>(.*?)</h2>", page) == HEADINGS
    drawn = re.findall(r'aria-label="(.*?)"', page)
    assert drawn == ["Rows over time"]
    assert "works before the split" in page


def test_headlines_name_the_splits_that_they_count(page: str) -> None:
    text = " ".join(re.sub(r"<[^>]+>", " ", page).split())
    assert len(re.findall(r"of all splits, \S+ % of them train", text)) == 1
    assert len(re.findall(r"of train, \S+ rows each at the median", text)) == 2


def test_page_is_self_contained(page: str) -> None:
    loading = re.findall(r"""(?:src|href|srcset|data|action)\s*=\s*["']([^"']*)""", page)
    loading += re.findall(r"url\(([^)]*)\)|@import", page)
    assert loading == ["data:,"]
    assert "http" not in page
    assert "<script" not in page


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (500, True)])
def test_page_in_a_browser(page: str, tmp_path: Path, width: int, dark: bool) -> None:
    seen = see(page, tmp_path, width=width, dark=dark)

    assert seen["headings"] == HEADINGS
    assert seen["charts"] == 1
    assert seen["loaded"] == []
    assert seen["overflow"] <= 0
    assert seen["ink"] == ("rgb(228, 231, 235)" if dark else "rgb(31, 35, 40)")


@pytest.mark.parametrize(
    ("rows", "options"),
    [
        ([(1, 1, 1.0, 5)], {"split": {"method": "temporal", "valid": 0, "test": 0}}),
        ([(None, None, None, None)] * 3, {"split": {"method": "random", "valid": 0, "test": 0}, "timestamp": None}),
        ([(1, 1, 0.5, 10**15)] * 9, {"split": {"method": "temporal", "valid": 0.4, "test": 0}}),
    ],
)
def test_page_of_tiny_data_has_every_section(
    prepare: Callable[..., PreparedData], rows: list[tuple[Any, ...]], options: dict[str, Any]
) -> None:
    page = prepare(rows, **options).report.read_text(encoding="utf-8")
    assert re.findall(r"<h2>(.*?)</h2>", page) == HEADINGS


def test_what_is_zero_is_left_out(prepare: Callable[..., PreparedData]) -> None:
    rows = [(n % 5, n // 5, 1.0, n) for n in range(100)]
    ids = {"op": "Categorify", "columns": ["user", "item"]}
    split = {"method": "random", "valid": 0.1, "test": 0}
    page = prepare(rows, ids, split=split, timestamp=None).report.read_text(encoding="utf-8")
    text = " ".join(re.sub(r"<[^>]+>", " ", page).split())
    assert "pair as another row: none." in text
    assert "again in" not in text
    assert "already in" not in text
    assert re.search(r"counts once per interaction\. None\.", text)


def test_names_of_columns_are_escaped(prepare: Callable[..., PreparedData]) -> None:
    label = {"op": "LambdaOp", "expression": "label > 0", "output": "<b>liked</b>", "dtype": "int8"}
    ids = {"op": "Categorify", "columns": ["user", "item"]}
    data = prepare({"train": [(1, 1, 1.0, 1), (2, 2, None, 2)]}, label, ids, label="<b>liked</b>")
    page = data.report.read_text(encoding="utf-8")
    assert "<b>" not in page
    assert "&lt;b&gt;liked" in page


def test_report_of_real_movielens(workspace: Workspace, shared_data: Path, tmp_path: Path) -> None:
    config = load(CONFIGS / "ml-latest-small.yaml")
    download(config.dataset, workspace, from_file=shared_data / "ml-latest-small.zip")
    data = etl(config, workspace).artifact
    facts = Facts.read(data.facts)

    assert sum(split.rows for split in facts.splits.values()) == 100_836
    assert facts.users is not None
    assert facts.users.distinct == 610
    assert facts.pairs is not None
    assert sum(facts.pairs.repeated.values()) == 0  # each user rates a film once
    assert sum(rows for earlier in facts.pairs.seen.values() for rows in earlier.values()) == 0
    assert {name: split.first for name, split in facts.splits.items()} == dict.fromkeys(facts.splits, 828124615)
    assert all(facts.train_only.values())
    assert len(facts.findings) == 1
    seen = see(data.report.read_text(encoding="utf-8"), tmp_path, width=1000)
    assert (seen["headings"], seen["charts"], seen["loaded"]) == (HEADINGS, 1, [])
