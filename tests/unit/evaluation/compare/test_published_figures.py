"""Verdicts on published figures: by our interval, and none on other data."""

from __future__ import annotations

import pytest

from recsys_cli.config.protocol import ProtocolConfig
from recsys_cli.evaluation.compare.leaderboard import (
    LeaderboardRow,
    PublishedComparison,
    SeededScore,
    compare_published,
    one_table,
)

PROTOCOL = ProtocolConfig.model_validate({
    "paper": "a paper",
    "rows": {"test": 10},
    "published": [
        {"model": "A", "source": "x", "figures": {"ndcg@10": 0.31, "hr@10": 0.5}},
        {"model": "B", "source": "x", "figures": {"ndcg@10": 0.25}, "ours": "sasrec"},
        {"model": "C", "source": "y", "figures": {"ndcg@10": 0.19}, "ours": "ease"},
        {"model": "D", "source": "y", "figures": {"ndcg@10": 0.1}, "ours": "absent"},
    ],
})  # fmt: skip


def row(label: str, value: float) -> LeaderboardRow:
    scores = {"ndcg@10": SeededScore(value=value, low=value - 0.05, high=value + 0.05)}
    return LeaderboardRow(
        place=1, label=label, is_baseline=False, scores=scores | {"hr@10": SeededScore(value=None)}, seeds=1
    )


def baseline(label: str, value: float) -> LeaderboardRow:
    return row(label, value).model_copy(update={"is_baseline": True})


STANDINGS = (row("ease", 0.3), row("sasrec", 0.24), baseline("popularity", 0.1), baseline("constant", 0.0))


def compared(
    *,
    rows: int = 10,
    digests: dict[str, bool | None] | None = None,
    standings: tuple[LeaderboardRow, ...] = STANDINGS,
    names: dict[str, str] | None = None,
) -> PublishedComparison:
    return compare_published(
        PROTOCOL,
        standings,
        names=names or {"ease": "ease", "sasrec": "sasrec"},
        label="",
        rows={"train": 1, "valid": 0, "test": rows},
        digests=digests or {},
    )


def verdicts(found: PublishedComparison) -> dict[tuple[str, str, str], str]:
    return {(one.model, one.ours, figure.metric): figure.verdict for one in found.models for figure in one.figures}


def test_a_figure_in_our_interval_is_level() -> None:
    found = compared()
    assert verdicts(found) == {
        ("A", "ease", "ndcg@10"): "level",
        ("A", "ease", "hr@10"): "not comparable",
        ("B", "sasrec", "ndcg@10"): "level",
        ("C", "ease", "ndcg@10"): "above",
        ("D", "absent", "ndcg@10"): "not run",
    }
    assert found.sentences[0] == "ease, NDCG@10: above C; level with A."
    assert found.sentences[-1] == "absent, NDCG@10: not run; to compare with D."
    assert found.sources == ["A; B: x", "C; D: y"]


def test_ease_and_popularity_are_next_to_each_published_figure() -> None:
    beside = {one.model: one.figures[0].baselines for one in compared().models}
    assert beside == {
        "A": {"ease": "level", "popularity": "below"},
        "B": {"ease": "level", "popularity": "below"},
        "C": {"ease": "above", "popularity": "below"},
        "D": {"ease": "above", "popularity": "level"},
    }
    without = compared(standings=(row("sasrec", 0.24),))
    assert {verdict for one in without.models for verdict in one.figures[0].baselines.values()} == {"not run"}


def test_a_baseline_without_all_items_has_no_verdict() -> None:
    """A published EASE of the whole catalog is no level for one of its most popular items."""
    ease = baseline("ease", 0.2).model_copy(update={"is_partial": True})
    found = compared(standings=(row("sasrec", 0.24), ease), names={"sasrec": "sasrec"})
    assert {one.figures[0].baselines["ease"] for one in found.models} == {"not run"}
    assert found.models[2].figures[0].verdict == "not run"
    assert any(note.startswith("the baseline ease leaves out items") for note in found.notes)


def test_a_partial_bench_compares_with_the_best_of_ours() -> None:
    """Whatever comes first in `bench.models`; a baseline is no model of the bench."""
    standings = (baseline("ease", 0.3), row("sasrec wide", 0.24), row("sasrec-tuned", 0.2), row("popularity", 0.1))
    names = {"popularity": "popularity", "sasrec-tuned": "sasrec", "sasrec wide": "sasrec"}
    found = verdicts(compared(standings=standings, names=names))
    assert found["A", "sasrec wide", "ndcg@10"] == "below"
    assert found["B", "sasrec wide", "ndcg@10"] == "level"  # the best of its kind
    assert found["C", "ease", "ndcg@10"] == "above"  # the baseline, as EASE is no model of this bench
    assert found["D", "absent", "ndcg@10"] == "not run"

    alone = verdicts(compared(standings=(row("popularity", 0.1),), names={"popularity": "popularity"}))
    assert alone["A", "popularity", "ndcg@10"] == "below"
    assert alone["B", "sasrec", "ndcg@10"] == "not run"


def test_the_best_entry_of_a_model_comes_before_the_label_of_its_name() -> None:
    standings = (row("tuned", 0.3), row("sasrec", 0.24))
    found = verdicts(compared(standings=standings, names={"tuned": "sasrec", "sasrec": "sasrec"}))
    assert found["B", "tuned", "ndcg@10"] == "level"
    assert ("B", "sasrec", "ndcg@10") not in found


@pytest.mark.parametrize("found", [compared(rows=9), compared(digests={"a.txt": True, "b.txt": False})])
def test_nothing_compares_on_other_data(found: PublishedComparison) -> None:
    verdicts = {figure.verdict for one in found.models if one.ours != "absent" for figure in one.figures}
    assert verdicts == {"not comparable"}
    assert found.data_in_words.startswith("Not the published data")


@pytest.mark.parametrize(
    ("digest", "words"), [(True, "equal the published files by digest"), (None, "the rows are not verified")]
)
def test_equal_numbers_of_rows_do_not_verify_the_files(digest: bool | None, words: str) -> None:
    assert words in compared(digests={"a.txt": digest}).data_in_words


def test_a_metric_that_is_not_in_the_bench_is_named() -> None:
    without = tuple(one.model_copy(update={"scores": {"ndcg@10": one.scores["ndcg@10"]}}) for one in STANDINGS)
    found = compared(standings=without)
    assert verdicts(found)["A", "ease", "hr@10"] == "not measured"
    assert "ease, HR@10: not in bench.metrics; to compare with A." in found.sentences


def test_published_models_and_ours_are_in_one_table() -> None:
    heads, cells = one_table(STANDINGS, compared(), ["ndcg@10", "hr@10"])
    assert [line[:2] for line in cells] == [
        ["A", "published"], ["ease", "ours"], ["B", "published"], ["sasrec", "ours"], ["C", "published"], ["D", "published"],
        ["popularity", "baseline"],
    ]  # fmt: skip
    assert heads[-3:] == ["ours is (NDCG@10)", "ease is (NDCG@10)", "popularity is (NDCG@10)"]
    assert [line[-3:] for line in cells if line[1] == "published"] == [
        ["ease level", "level", "below"],
        ["sasrec level", "level", "below"],
        ["ease above", "above", "below"],
        ["–", "above", "level"],
    ]
    assert {len(line) for line in cells} == {len(heads)}


def test_a_verdict_by_another_metric_names_it() -> None:
    """A has figures of both metrics, and all others of NDCG alone: their verdicts are not by the HR of the headings."""
    hr = {"hr@10": SeededScore(value=0.4, low=0.35, high=0.45)}
    standings = tuple(one.model_copy(update={"scores": one.scores | hr}) for one in STANDINGS)
    heads, cells = one_table(standings, compared(standings=standings), ["hr@10", "ndcg@10"])
    assert heads[-3:] == ["ours is (HR@10)", "ease is (HR@10)", "popularity is (HR@10)"]
    assert {line[0]: line[-3:] for line in cells if line[1] == "published"} == {
        "A": ["ease below", "below", "below"],
        "B": ["sasrec level (NDCG@10)", "level (NDCG@10)", "below (NDCG@10)"],
        "C": ["ease above (NDCG@10)", "above (NDCG@10)", "below (NDCG@10)"],
        "D": ["–", "above (NDCG@10)", "level (NDCG@10)"],
    }
