"""The report opens offline in a real browser, shows what was measured, and survives what is not there."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest

from recsys_cli.config import EvaluateConfig
from recsys_cli.errors import DataError
from recsys_cli.evaluation import Ceiling, Counts, Curve, Estimate, Evaluation, Protocol
from recsys_cli.evaluation.report import render
from recsys_cli.evaluation.report.users import ExampleUser, ListedItem
from recsys_cli.evaluation.result import Cohort
from recsys_cli.evaluation.task import repeat_note
from recsys_cli.metrics import BEYOND, POINTWISE, RANKING
from recsys_cli.metrics.named import ARROWS, best_of
from tests.browser import see

HEADINGS = [
    "Predictions", "Ranking", "Cohorts", "Recommended items", "Example users", "Learning curves", "Protocol",
    "Config and manifest",
]  # fmt: skip
CHARTS = 3
"""Reliability, loss, and AUC of valid."""
SAMPLE = "a sample of 20 of 1,234 users"


@pytest.fixture
def evaluation() -> Evaluation:
    figure = Estimate(value=0.7654, low=0.75, high=0.78)
    names = [f"{name}@{k}" for k in (5, 10) for name in RANKING]
    counts = dict.fromkeys(Counts.model_fields, 10)
    counts |= {"users_ranked": 20, "users_eligible": 1_234, "rows": 4_321, "each_next_item": False}
    line = Curve(x=(0.0, 0.4, 1.0), y=(0.0, 0.7, 1.0))
    return Evaluation(
        key="0" * 64,
        run="20260101T000000-mlp-<b>",
        model="mlp",
        dataset="toys <i>",
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
                about="users absent from train <b>",
                rows=4,
                users=0,
                pointwise={"model": {"auc": figure}},
                ranking={},
            ),
        ),
        reliability=line,
        counts=Counts(**counts),
        protocol=Protocol(**{name: f"About {name} & more." for name in Protocol.model_fields}),
        ceiling=Ceiling(label="rating > 3", auc=0.9),
        notes=("A note <to the reader>.",),
        seconds={"score rows": 1.25},
        device="cpu",
        config=EvaluateConfig(k=(10, 5)),
    )


LINE = ListedItem("A <b>title</b> & more", "<i>Drama</i>", "2001-09-09", is_marked=True)
USERS = [
    ExampleUser(
        "u<1>",
        "History: 3 interactions",
        history=[LINE],
        recommended=[LINE, ListedItem("Nothing special", "")],
        ground_truth=[],
    )
]
HISTORY = [
    {"epoch": 1, "step": 3, "train_loss": 0.65, "valid": {"loss": None, "auc": 0.7}},
    {"epoch": 2, "step": 6, "train_loss": float("nan"), "valid": {"loss": 0.6, "auc": None}},
]


def _page(evaluation: Evaluation, users: list[ExampleUser] = USERS, **manifest: Any) -> str:
    manifest = {"model": "mlp", "history": [], **manifest}
    return render(evaluation, config="model:\n  name: <mlp>\n", manifest=manifest, users=users)


def test_repeated_pairs_are_noted_once_and_beside_the_ranking(evaluation: Evaluation) -> None:
    counts = evaluation.counts.model_copy(update={"pairs": 10_468, "pairs_repeated": 3_441})
    note = repeat_note("test", counts, evaluation.config)
    assert note is not None
    assert note.startswith("3,441 of the 10,468 relevant (user, item) pairs of test (32.9 %) repeat an earlier pair")

    page = _page(evaluation.model_copy(update={"counts": counts, "notes": (note,)}))

    assert page.count(note) == 1
    assert page.index("<h2>Ranking</h2>") < page.index(note) < page.index("<h2>Cohorts</h2>")


def test_page_shows_figures_sample_and_ceiling(evaluation: Evaluation) -> None:
    page = _page(evaluation, history=HISTORY)

    assert re.findall(r"<h2>(.*?)</h2>", page) == HEADINGS
    assert "0.8123" in page
    assert "0.8000 – 0.8200" in page
    assert page.count(SAMPLE) == 1
    assert "0.9000" in page
    assert page.count("<svg") == CHARTS
    assert "<td>–</td>" in page  # the AUC that is not defined


def test_page_is_named_after_model_data_and_split_and_its_columns_after_the_systems(evaluation: Evaluation) -> None:
    page = _page(evaluation)

    title = re.search(r"<title>(.*?)</title>", page)
    assert title is not None
    assert re.fullmatch(r"mlp on toys &lt;i&gt;, test, \d{4}-\d\d-\d\d – recsys report", title[1])
    assert "<h1>mlp on toys &lt;i&gt;</h1>" in page
    assert "<th></th><th>mlp</th><th>item mean</th>" in page
    assert "log loss ↓" in page

    ease = evaluation.model_copy(update={"model": "popularity", "selected": ("epoch",)})
    assert "<th></th><th>popularity †</th><th>popularity (baseline)</th>" in _page(ease)
    same = ease.model_copy(update={"ranking": {**ease.ranking, "popularity": ease.ranking["model"]}})
    assert "popularity (baseline)" not in _page(same)


@pytest.mark.parametrize(
    ("value", "low", "high", "words"),
    [(0.5, 0.45, 0.55, "better than"), (0.22, 0.18, 0.26, "level with"), (0.1, 0.05, 0.15, "worse than")],
)
def test_cards_say_whether_the_model_has_won(
    evaluation: Evaluation, value: float, low: float, high: float, words: str
) -> None:
    ndcg = {"model": Estimate(value=value, low=low, high=high), "ease": Estimate(value=0.2, low=0.17, high=0.23)}
    ranking = {system: {"ndcg@5": one} for system, one in (ndcg | {"mlp": ndcg["model"]}).items()}  # its own baseline
    page = _page(evaluation.model_copy(update={"ranking": ranking}))
    card = re.search(r"<div([^>]*)><dt>NDCG@5</dt>.*?</div>", page)
    assert card is not None
    assert f"{words} ease: 0.2000" in card[0]
    assert card[1] == (' class="lost"' if words == "worse than" else "")


def test_best_is_all_whose_interval_overlaps_that_of_the_best() -> None:
    figures = [(0.8, 0.78, 0.82), (0.79, 0.77, 0.81), (0.7, 0.69, 0.71), (None, None, None)]
    assert best_of(figures, "higher") == [True, True, False, False]
    assert best_of(figures, "lower") == [False, False, True, False]
    assert best_of(figures, None) == [False] * 4
    assert best_of([(0.5, None, None), (0.4, 0.3, 0.6)], "higher") == [True, False]
    assert best_of([(1.25, 1.2, 1.3), (0.9, 0.85, 0.95), (0.5, 0.4, 0.6)], "one") == [False, True, False]
    assert best_of(figures[:1], "higher") == [False]
    assert best_of(figures[:2], "higher") == [False, False]  # all would be marked
    assert best_of([(0.0, 0.0, 0.0), (0.0, 0.0, 0.0), (None, None, None)], "higher") == [False] * 3
    assert best_of([(0.0, 0.0, 0.1), (0.5, 0.4, 0.6)], "lower") == [True, False]


def test_page_loads_nothing(evaluation: Evaluation) -> None:
    page = _page(evaluation, history=HISTORY)

    loading = re.findall(r"""(?:src|href|srcset|data|action)\s*=\s*["']([^"']*)""", page) + re.findall(
        r"url\(([^)]*)\)|@import", page
    )
    assert loading
    assert all(target.startswith(("#", "data:")) for target in loading)
    assert "<script" not in page


def test_page_escapes_texts(evaluation: Evaluation) -> None:
    page = _page(evaluation)

    for text in ("A <b>title</b> & more", "<i>Drama</i>", "User u<1>", "users absent from train <b>"):
        assert text not in page
        assert html.escape(text) in page
    for text in ("20260101T000000-mlp-<b>", "A note <to the reader>.", "name: <mlp>", "About users & more."):
        assert text not in page
        assert html.escape(text) in page


def test_page_without_history_or_ranking_has_notes(evaluation: Evaluation) -> None:
    update = {"ranking": {}, "beyond": {}, "cohorts": (), "ceiling": None}
    page = _page(evaluation.model_copy(update=update), users=[])

    assert re.findall(r"<h2>(.*?)</h2>", page) == [*HEADINGS[:2], *HEADINGS[6:]]
    assert "Not measured" in page
    assert page.count("<svg") == 1


def test_page_shows_metrics_and_definitions_of_cohorts(evaluation: Evaluation) -> None:
    page = _page(evaluation)

    cohort = page[page.index("<p>AUC of the rows of each cohort.</p>") :]
    assert re.search(r"<th>cold users</th><td>0\.7654", cohort)
    assert "<th>cold users</th><td>users absent from train &lt;b&gt;</td><td>4</td><td>–</td>" in page


def test_page_shows_beyond_accuracy_metrics_with_their_direction(evaluation: Evaluation) -> None:
    page = _page(evaluation)

    for name, metric in BEYOND.items():
        assert f">{metric.title}@10 {ARROWS[metric.better]}".rstrip() + "</th>" in page, name
    assert "0.2500" in page


def test_page_marks_hits_and_shows_users_by_title(evaluation: Evaluation) -> None:
    page = _page(evaluation)

    rows = re.findall(r"<tr><td>(✓?)</td><td>([^<]*)", page)
    assert rows == [("✓", "A &lt;b&gt;title&lt;/b&gt; &amp; more")] * 2 + [("", "Nothing special")]


def test_page_names_sampled_metrics(evaluation: Evaluation) -> None:
    config = evaluation.config.model_copy(update={"candidates": "sampled-uniform"})
    ranking = {
        system: {f"sampled_{name}": found for name, found in figures.items()}
        for system, figures in evaluation.ranking.items()
    }
    page = _page(evaluation.model_copy(update={"config": config, "ranking": ranking}))

    assert "full catalog" not in page
    assert '<p class="note">About candidates &amp; more.</p>' in page
    assert "<dt>sampled NDCG@5</dt><dd>0.7654</dd>" in page
    assert "<th>sampled NDCG@10 ↑</th>" in page


def test_page_draws_each_metric_of_valid_and_says_which_epoch_is_kept(evaluation: Evaluation) -> None:
    page = _page(evaluation, history=HISTORY, best_epoch=2, monitor="ndcg@10")

    assert "from epoch 2, the best by ndcg@10" in page
    assert re.findall(r'aria-label="(.*? over steps)"', page) == ["Loss over steps", "AUC over steps"]
    assert "AUC at the end of each epoch." in page
    assert [page.count(f"<title>{point}</title>") for point in ("3, 0.65", "6, 0.6", "3, 0.7")] == [1, 1, 1]


def test_evaluation_survives_its_file(evaluation: Evaluation, tmp_path: Path) -> None:
    path = tmp_path / evaluation.run / "evaluation.json"
    path.parent.mkdir()
    path.write_text(evaluation.model_dump_json())

    assert Evaluation.read(path) == evaluation
    assert json.loads(path.read_text())["pointwise"]["item mean"]["auc"] == {"value": None, "low": None, "high": None}


def test_evaluation_of_another_run_is_refused(evaluation: Evaluation, tmp_path: Path) -> None:
    path = tmp_path / "20260101T000000-other-1" / "evaluation.json"
    path.parent.mkdir()
    path.write_text(evaluation.model_dump_json())
    with pytest.raises(DataError, match=f"is of the run {evaluation.run}") as caught:
        Evaluation.read(path)
    assert caught.value.hint == "recsys evaluate --force"


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (500, True), (360, False)])
def test_page_in_a_browser_is_whole(evaluation: Evaluation, tmp_path: Path, width: int, dark: bool) -> None:
    seen = see(_page(evaluation, history=HISTORY), tmp_path, width=width, dark=dark)

    assert seen["headings"] == HEADINGS
    assert seen["charts"] == CHARTS
    assert seen["loaded"] == []
    assert seen["overflow"] <= 0
    assert seen["ink"] == ("rgb(228, 231, 235)" if dark else "rgb(31, 35, 40)")


def test_browser_check_would_see_a_request(tmp_path: Path) -> None:
    seen = see('<body><img src="http://127.0.0.1:9/a.png"></body>', tmp_path, width=600)

    assert seen["loaded"] == ["http://127.0.0.1:9/a.png"]
