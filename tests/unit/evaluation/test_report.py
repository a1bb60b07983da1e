"""The report opens offline in a real browser, shows what was measured, and survives what is not there."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest
from browser import see

from recsys_cli.config import EvaluateConfig
from recsys_cli.evaluation import Ceiling, Counts, Curve, Estimate, Evaluation, Protocol
from recsys_cli.evaluation.metrics import BEYOND, POINTWISE, RANKING
from recsys_cli.evaluation.report import render
from recsys_cli.evaluation.report.history import read_history
from recsys_cli.evaluation.result import Cohort

HEADINGS = ["Predictions", "Ranking", "Learning curves", "Protocol", "Config", "Manifest"]
SAMPLE = "a sample of 20 of 1,234 users"


@pytest.fixture
def evaluation() -> Evaluation:
    figure = Estimate(value=0.7654, low=0.75, high=0.78)
    names = [f"{name}@{k}" for k in (5, 10) for name in RANKING]
    counts = dict.fromkeys(Counts.model_fields, 10) | {"users_ranked": 20, "users_eligible": 1_234, "rows": 4_321}
    line = Curve(x=(0.0, 0.4, 1.0), y=(0.0, 0.7, 1.0))
    return Evaluation(
        key="0" * 64,
        run="20260101T000000-mlp-<b>",
        split="test",
        pointwise={
            "model": dict.fromkeys(POINTWISE, figure) | {"auc": Estimate(value=0.8123, low=0.8, high=0.82)},
            "item mean": dict.fromkeys(POINTWISE, figure) | {"auc": Estimate(value=None)},
        },
        ranking={"model": dict.fromkeys(names, figure), "popularity": dict.fromkeys(names, Estimate(value=0.1))},
        beyond={"model": {f"{name}@10": Estimate(value=0.25) for name in BEYOND}, "popularity": {}},
        cohorts=(
            Cohort(
                name="cold users",
                about="users that train does not know <b>",
                rows=4,
                users=0,
                pointwise={"model": {"auc": figure}},
                ranking={},
            ),
        ),
        reliability=line,
        roc={"model": line, "item mean": Curve(x=(), y=())},
        precision_recall={"model": line, "item mean": Curve(x=(), y=())},
        counts=Counts(**counts),
        protocol=Protocol(**{name: f"About {name} & more." for name in Protocol.model_fields}),
        ceiling=Ceiling(label="rating > 3", auc=0.9),
        notes=("A note <to the reader>.",),
        seconds={"score rows": 1.25},
        device="cpu",
        config=EvaluateConfig(k=(10, 5)),
    )


def _page(evaluation: Evaluation, tmp_path: Path, lines: str = "") -> str:
    metrics = tmp_path / "metrics.jsonl"
    if lines:
        metrics.write_text(lines)
    return render(
        evaluation, history=read_history(metrics), config="model:\n  name: <mlp>\n", manifest={"model": "mlp"}
    )


LINES = """\
{"event": "step", "epoch": 1, "step": 1, "loss": 0.7}
{"event": "step", "epoch": 1, "step": 2, "loss": NaN}
{"event": "step", "epoch": 1, "step": 3, "loss": 0.6}
{"event": "epoch", "epoch": 1, "step": 3, "train_loss": 0.65, "valid": {"loss": null, "auc": 0.7}}
{"event": "other"}
[1, 2]
{"event": "epoch", "epoch": 2, "step": 6, "train_l"""


def test_page_shows_figures_sample_and_ceiling(evaluation: Evaluation, tmp_path: Path) -> None:
    page = _page(evaluation, tmp_path, LINES)

    assert re.findall(r"<h2>(.*?)</h2>", page) == HEADINGS
    assert "0.8123" in page
    assert "0.8000 – 0.8200" in page
    assert page.count(SAMPLE) == 2  # above the table and below the plot
    assert "0.9000" in page
    assert page.count("<svg") == 5
    assert "–<span" in page  # the AUC that is not defined


def test_page_loads_nothing(evaluation: Evaluation, tmp_path: Path) -> None:
    page = _page(evaluation, tmp_path, LINES)

    loading = re.findall(r"""(?:src|href|srcset|data|action)\s*=\s*["']([^"']*)""", page) + re.findall(
        r"url\(([^)]*)\)|@import", page
    )
    assert loading
    assert all(target.startswith(("#", "data:")) for target in loading)
    assert "<script" not in page


def test_page_escapes_what_it_shows(evaluation: Evaluation, tmp_path: Path) -> None:
    page = _page(evaluation, tmp_path)

    for text in ("20260101T000000-mlp-<b>", "A note <to the reader>.", "name: <mlp>", "About users & more."):
        assert text not in page
        assert html.escape(text) in page


def test_page_ids_are_unique(evaluation: Evaluation, tmp_path: Path) -> None:
    ids = re.findall(r'\bid="([^"]*)"', _page(evaluation, tmp_path, LINES))

    assert len(ids) == len(set(ids))


def test_page_takes_all_colours_from_the_style(evaluation: Evaluation, tmp_path: Path) -> None:
    svgs = re.findall(r"<svg.*?</svg>", _page(evaluation, tmp_path, LINES), re.DOTALL)

    assert not [colour for svg in svgs for colour in re.findall(r"#[0-9a-f]{6}\b", svg) if not colour.startswith("#m")]


def test_page_without_history_or_ranking_says_so(evaluation: Evaluation, tmp_path: Path) -> None:
    page = _page(evaluation.model_copy(update={"ranking": {}, "ceiling": None}), tmp_path)

    assert re.findall(r"<h2>(.*?)</h2>", page) == HEADINGS
    assert "kept no metrics" in page
    assert "Not measured" in page
    assert page.count("<svg") == 2


def test_history_leaves_out_what_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(LINES)

    history = read_history(tmp_path / "metrics.jsonl")

    assert history.step_loss == Curve(x=(1, 3), y=(0.7, 0.6))
    assert history.train_loss == Curve(x=(3,), y=(0.65,))
    assert history.valid_loss == Curve(x=(), y=())
    assert history.valid_auc == Curve(x=(3,), y=(0.7,))


def test_evaluation_survives_its_file(evaluation: Evaluation, tmp_path: Path) -> None:
    path = tmp_path / "evaluation.json"
    path.write_text(evaluation.model_dump_json())

    assert Evaluation.read(path) == evaluation
    assert json.loads(path.read_text())["pointwise"]["item mean"]["auc"] == {"value": None, "low": None, "high": None}


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (500, True)])
def test_page_in_a_browser_is_whole(evaluation: Evaluation, tmp_path: Path, width: int, dark: bool) -> None:
    seen = see(_page(evaluation, tmp_path, LINES), tmp_path, width=width, dark=dark)

    assert seen["headings"] == HEADINGS
    assert seen["charts"] == 5
    assert seen["loaded"] == []
    assert seen["overflow"] <= 0
    assert seen["ink"] == ("rgb(228, 231, 235)" if dark else "rgb(31, 35, 40)")


def test_browser_check_would_see_a_request(tmp_path: Path) -> None:
    seen = see('<body><img src="http://127.0.0.1:9/a.png"></body>', tmp_path, width=600)

    assert seen["loaded"] == ["http://127.0.0.1:9/a.png"]
