"""Verdicts on published figures: by our interval, and none on other data."""

from __future__ import annotations

import pytest

from recsys_cli.config.protocol import ProtocolConfig
from recsys_cli.evaluation.compare.leaderboard import (
    LeaderboardRow,
    PublishedComparison,
    SeededScore,
    Variant,
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


def verdicts(found: PublishedComparison) -> dict[tuple[str, str], dict[str, str]]:
    return {(one.model, one.ours): dict(one.verdicts) for one in found.models}


def test_a_figure_in_our_interval_is_level() -> None:
    found = compared()
    assert verdicts(found) == {
        ("A", "ease"): {"ndcg@10": "level"},  # our HR is undefined
        ("B", "sasrec"): {"ndcg@10": "level"},
        ("C", "ease"): {"ndcg@10": "above"},
        ("D", "absent"): {},
    }
    assert found.sources == ["A; B: x", "C; D: y"]


def test_a_baseline_without_all_items_has_no_verdict() -> None:
    """A published EASE of the whole catalog is no level for one of its most popular items."""
    ease = baseline("ease", 0.2).model_copy(update={"is_partial": True})
    found = compared(standings=(row("sasrec", 0.24), ease), names={"sasrec": "sasrec"})
    assert verdicts(found)["C", "ease"] == {}


def test_a_partial_bench_compares_with_the_best_of_ours() -> None:
    """Whatever comes first in `bench.models`; a baseline is no model of the bench."""
    standings = (baseline("ease", 0.3), row("sasrec wide", 0.24), row("sasrec-tuned", 0.2), row("popularity", 0.1))
    names = {"popularity": "popularity", "sasrec-tuned": "sasrec", "sasrec wide": "sasrec"}
    assert verdicts(compared(standings=standings, names=names)) == {
        ("A", "sasrec wide"): {"ndcg@10": "below"},
        ("B", "sasrec wide"): {"ndcg@10": "level"},  # the best of its kind
        ("C", "ease"): {"ndcg@10": "above"},  # the baseline, as EASE is no model of this bench
        ("D", "absent"): {},
    }


def test_the_best_entry_of_a_model_comes_before_the_label_of_its_name() -> None:
    standings = (row("tuned", 0.3), row("sasrec", 0.24))
    found = verdicts(compared(standings=standings, names={"tuned": "sasrec", "sasrec": "sasrec"}))
    assert found["B", "tuned"] == {"ndcg@10": "level"}


@pytest.mark.parametrize("found", [compared(rows=9), compared(digests={"a.txt": True, "b.txt": False})])
def test_nothing_compares_on_other_data(found: PublishedComparison) -> None:
    assert not any(verdicts(found).values())
    assert found.data_in_words.startswith("Not the published data")


@pytest.mark.parametrize(
    ("digest", "words"), [(True, "equal the published files by digest"), (None, "the rows are not verified")]
)
def test_equal_numbers_of_rows_do_not_verify_the_files(digest: bool | None, words: str) -> None:
    assert words in compared(digests={"a.txt": digest}).data_in_words


def test_published_models_and_ours_are_in_one_table() -> None:
    heads, cells = one_table(STANDINGS, compared(), ["ndcg@10", "hr@10"])
    assert heads == ["model", "", "NDCG@10", "HR@10", "verdict on ours"]
    assert cells == [
        ["A", "published", "0.3100", "0.5000", "ease level by NDCG@10"],
        ["ease", "ours", "0.3000", "–", ""],
        ["B", "published", "0.2500", "–", "sasrec level by NDCG@10"],
        ["sasrec", "ours", "0.2400", "–", ""],
        ["C", "published", "0.1900", "–", "ease above by NDCG@10"],
        ["D", "published", "0.1000", "–", "–"],
        ["popularity", "baseline", "0.1000", "–", ""],
    ]


@pytest.mark.parametrize(
    ("shuffled", "verdict"),
    [
        (0.35, "sasrec above by NDCG@10, with ties shuffled as well"),
        (0.26, "sasrec above by NDCG@10 in file order only, level with ties shuffled"),
        (0.1, "sasrec above by NDCG@10 in file order only, below with ties shuffled"),
        (None, "sasrec above by NDCG@10"),
    ],
)
def test_the_verdict_is_by_the_order_of_the_file_and_with_ties_shuffled(shuffled: float | None, verdict: str) -> None:
    scores = {} if shuffled is None else {"sasrec": row("sasrec", shuffled).scores}
    variants = (
        Variant(name="time", text="t", users=1, scores={"sasrec": row("sasrec", 0.9).scores}),
        Variant(name="ties", text="t", users=1, scores=scores),
    )
    standings = (row("sasrec", 0.4), baseline("popularity", 0.1))
    found = compare_published(
        PROTOCOL, standings, names={"sasrec": "sasrec"}, label="", rows={"test": 10}, digests={}, variants=variants
    )
    _, cells = one_table(standings, found, ["ndcg@10"])
    assert [line[-1] for line in cells if line[0] == "B"] == [verdict]
    other = compare_published(
        PROTOCOL, standings, names={"sasrec": "sasrec"}, label="", rows={"test": 9}, digests={}, variants=variants
    )
    assert not any(one.shuffled for one in other.models)
