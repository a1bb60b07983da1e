"""Systems whose difference is known by construction: what they come to, user by user, and what is said of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from recsys_cli.evaluation.compare.comparison import METHOD, ComparedRun, Comparison, figures_of, in_common, verdicts
from recsys_cli.evaluation.compare.outcomes import Outcomes
from recsys_cli.evaluation.compare.pages import comparison_page
from recsys_cli.evaluation.rankings import Rankings
from recsys_cli.metrics.labels import AUC, LOG_LOSS
from tests.browser import see

USERS, ROWS = 300, 800
OPTIONS = {"resamples": 300, "seed": 0}


def kept(seed: int, *, share: float = 0.4, signal: float = 1.0, order: np.ndarray | None = None) -> Rankings:
    """What an evaluation keeps of a system that finds the one wanted item for a share of the users, on one of ten places."""
    rng = np.random.default_rng(seed)
    hits = np.zeros((USERS, 10), dtype=bool)
    hits[np.arange(USERS), rng.integers(0, 10, USERS)] = rng.random(USERS) < share
    labels = np.random.default_rng(99).random(ROWS) < 0.5
    order = np.arange(USERS) if order is None else order
    return Rankings(
        split="test",
        k=(5, 10),
        protocol={"split": "Rows of test."},
        problem="p",
        rows="r",
        users=np.arange(3, USERS + 3),
        user_hashes=(np.arange(USERS, dtype=np.uint64) * np.uint64(7_919))[order],
        num_relevant=np.ones(USERS, dtype=np.int64),
        items={"model": np.zeros((USERS, 10), dtype=np.int32)},
        hits={"model": hits[order]},
        sampled=np.zeros((USERS, 0), dtype=np.int32),
        logits=(signal * labels + rng.normal(size=ROWS)).astype(np.float32),
        labels=labels.astype(np.uint8),
        row_users=np.full(ROWS, 3, dtype=np.int32),
        row_items=np.full(ROWS, 3, dtype=np.int32),
        row_clusters=np.arange(ROWS, dtype=np.int32),
    )


def test_outcomes_average_to_the_figures() -> None:
    found = kept(0)
    outcomes = Outcomes.of(found)
    assert outcomes.value("hr@10") == found.hits["model"].any(axis=1).mean()
    assert outcomes.value("hr@5") == found.hits["model"][:, :5].any(axis=1).mean()
    labels = found.labels.astype(np.float32)
    assert outcomes.value("auc") == pytest.approx(AUC.of_rows(labels, found.logits))
    assert outcomes.value("log_loss") == pytest.approx(LOG_LOSS.of_rows(labels, found.logits))
    assert set(outcomes.metrics.values()) == {"users", "rows"}
    assert Outcomes.of(found, metrics={"hr@5"}).metrics == {"hr@5": "users"}


def test_figures_of_sampled_candidates_are_called_so() -> None:
    sampled = Outcomes.of(Rankings(**{**vars(kept(0)), "sampled": np.ones((USERS, 4), dtype=np.int32)}))
    assert {
        name for name, unit in sampled.metrics.items() if unit == "users" and not name.startswith("sampled_")
    } == set()
    assert sampled.value("sampled_hr@10") == Outcomes.of(kept(0)).value("hr@10")
    (figure,) = figures_of({"one": sampled, "two": sampled}, ["sampled_hr@10"], **OPTIONS)
    assert figure.title == "sampled HR@10"


def test_users_are_matched_by_value_whatever_their_ids_are() -> None:
    """The same system, evaluated on data in which all users have other ids."""
    order = np.random.default_rng(5).permutation(USERS)
    one, same, other = (Outcomes.of(found) for found in (kept(1), kept(1, order=order), kept(2)))
    tested = same.minus(one, ["ndcg@10"], **OPTIONS)["ndcg@10"]
    assert (tested.value, tested.low, tested.high, tested.p) == (0, 0, 0, 1)
    assert other.minus(one, ["ndcg@10"], **OPTIONS)["ndcg@10"].high > 0


def test_seeds_are_averaged_and_users_do_not_become_more() -> None:
    one, two = Outcomes.of(kept(1)), Outcomes.of(kept(2))
    both = Outcomes.mean([one, two])
    assert both.value("ndcg@10") == pytest.approx((one.value("ndcg@10") + two.value("ndcg@10")) / 2)
    assert both.value("auc") == pytest.approx((one.value("auc") + two.value("auc")) / 2)
    assert len(both.users["ndcg@10"]) == USERS


def test_a_planted_difference_is_better_and_chance_is_noise() -> None:
    systems = {
        "first": Outcomes.of(kept(1)),
        "twin": Outcomes.of(kept(2)),
        "good": Outcomes.of(kept(3, share=0.8, signal=2.0)),
    }
    figures = {
        figure.metric: figure for figure in figures_of(systems, ["hr@10", "ndcg@10", "auc", "log_loss"], **OPTIONS)
    }
    assert {figure.differences["twin"].verdict for figure in figures.values()} == {"noise"}
    assert {figure.differences["good"].verdict for figure in figures.values()} == {"better"}
    assert figures["log_loss"].differences["good"].value < 0  # less loss is better
    assert figures["hr@10"].differences["good"].low < 0.4 < figures["hr@10"].differences["good"].high
    pairs = [one for figure in figures.values() for one in figure.differences.values()]
    smallest = min(pairs, key=lambda one: one.p)
    assert smallest.p_holm == pytest.approx(smallest.p * 8)  # eight tests are one family
    reverse = figures_of(dict(reversed(systems.items())), ["hr@10"], **OPTIONS)[0]
    assert reverse.differences["first"].verdict == "worse"


def test_identical_systems_do_not_differ_significantly() -> None:
    systems = {"one": Outcomes.of(kept(1)), "two": Outcomes.of(kept(1))}
    figures = figures_of(systems, list(systems["one"].metrics), **OPTIONS)
    for figure in figures:
        one = figure.differences["two"]
        assert (one.value, one.low, one.high, one.p_holm, one.verdict) == (0, 0, 0, 1, "noise")
    (sentence,) = verdicts("one", ["two"], figures, users=USERS, rows=ROWS)
    assert (
        sentence
        == "two and one do not differ significantly by any of 14 metrics (300 users and 800 rows; corrected for 14 comparisons)."
    )


def test_the_planned_test_of_evaluate_may_differ_from_a_comparison_of_all_metrics_and_the_text_says_so() -> None:
    rng = np.random.default_rng(0)
    gains = rng.random(200)
    zero = dict.fromkeys((f"ndcg@{k}" for k in range(2, 14)), np.zeros(200))
    model = Outcomes.of_users({name: gains - gains.mean() + 0.055 for name in zero})  # p is about .008
    popularity, ease = Outcomes.of_users(zero), Outcomes.of_users({name: gains - gains.mean() for name in zero})
    (planned,) = figures_of({"model": model, "popularity": popularity, "ease": ease}, ["ndcg@10"], **OPTIONS)
    figures = figures_of({"model": model, "popularity": popularity}, list(zero), **OPTIONS)
    assert planned.differences["popularity"].verdict == "worse"
    assert {one.differences["popularity"].verdict for one in figures} == {"noise"}
    (said,) = verdicts("model", ["popularity"], figures, users=200)
    assert "corrected for 12 comparisons" in said
    assert figures[0].differences["popularity"].in_words == "not significant: p (Holm) ≥ 0.05"
    assert planned.differences["popularity"].in_words == "significantly worse"
    assert "A difference significant there may not be here" in METHOD


def a_comparison() -> Comparison:
    systems = {
        "mf_a": Outcomes.of(kept(1)),
        "<b>": Outcomes.of(kept(3, share=0.8)),
        "c": Outcomes.of(kept(4, share=0.1, signal=3.0)),
    }
    figures = figures_of(systems, ["hr@10", "auc"], **OPTIONS)
    return Comparison(
        against="mf_a",
        runs=tuple(
            ComparedRun(
                label=label,
                run=f"run-{label}",
                model="mf",
                data="d",
                dataset="toys",
                selected=("epoch",) if label == "c" else (),
            )
            for label in systems
        ),
        split="test",
        users=USERS,
        rows=ROWS,
        figures=figures,
        tests=4,
        sentences=tuple(verdicts("mf_a", ["<b>", "c"], figures, users=USERS, rows=ROWS)),
        protocol={"split": "Rows of test."},
    )


def test_sentences_name_significant_differences() -> None:
    better, mixed = a_comparison().sentences
    assert better == (
        "Compared with mf_a, <b> is significantly better by HR@10. No significant difference by AUC (300 users and 800 rows; "
        "corrected for 4 comparisons)."
    )
    assert mixed == "Compared with mf_a, c is significantly better by AUC, but significantly worse by HR@10."


def test_page_and_title_name_the_data_and_mark_rows_that_chose(tmp_path: Path) -> None:
    page = comparison_page(a_comparison())
    assert "against mf_a, toys, test" in page
    assert "c †" in page
    assert "mf_a †" not in page
    assert "AUC ↑" in page


def test_the_page_shows_all_of_it(tmp_path: Path) -> None:
    page = comparison_page(a_comparison())
    assert page.count("<svg") == 2
    assert "&lt;b&gt; is significantly better by HR@10" in page
    assert "<b>" not in page
    assert page.count('class="dot s1"') == 2
    assert page.count('class="dot s2"') == 1
    assert page.count('class="dot s5"') == 1
    seen = see(page, tmp_path, width=360, dark=True)
    assert seen["loaded"] == []
    assert seen["overflow"] <= 0
    assert seen["charts"] == 2
    assert seen["headings"] == ["Differences", "Method", "Runs"]


def test_metrics_that_are_not_in_common_are_dropped_with_a_note() -> None:
    one, two = kept(1), kept(2)
    moved = Rankings(**{**vars(two), "rows": "another order"})
    systems, notes = in_common({"one": Outcomes.of(one), "two": Outcomes.of(moved)}, [one, moved])
    assert set(systems["one"].metrics.values()) == {"users"}
    assert "Pointwise metrics are not compared" in notes[0]
    nobody = Rankings(**{**vars(two), "users": two.users[:0], "user_hashes": two.user_hashes[:0]})
    systems, notes = in_common({"one": Outcomes.of(one), "two": Outcomes.of(nobody)}, [one, nobody])
    assert set(systems["two"].metrics) == {"auc", "log_loss"}
    assert notes == ("Ranking metrics are not compared: two has no rankings.",)
    ordered = Outcomes.of(two, metrics={"auc", "ndcg@10"})
    systems, notes = in_common({"one": Outcomes.of(one), "two": ordered}, [one, two])
    assert set(systems["one"].metrics) == {"auc", "ndcg@10"}
    assert notes == ("log loss is not compared: two has none.",)
