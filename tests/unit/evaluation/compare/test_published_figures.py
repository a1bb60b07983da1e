"""Verdicts on published figures: by our interval, and none on other data."""

from __future__ import annotations

import pytest

from recsys_cli.config.protocol import ProtocolConfig
from recsys_cli.evaluation.compare.leaderboard import LeaderboardRow, SeededScore
from recsys_cli.evaluation.compare.published import PublishedComparison, compare_published, one_table

PROTOCOL = ProtocolConfig.model_validate({
    "paper": "a paper",
    "rows": {"test": 10},
    "published": [
        {"model": "A", "source": "x", "figures": {"ndcg@10": 0.31, "hr@10": 0.5}},
        {"model": "B", "source": "x", "figures": {"ndcg@10": 0.25}},
        {"model": "C", "source": "y", "figures": {"ndcg@10": 0.19}, "ours": "ease"},
        {"model": "D", "source": "y", "figures": {"ndcg@10": 0.1}, "ours": "absent"},
    ],
})  # fmt: skip


def row(label: str, value: float) -> LeaderboardRow:
    scores = {"ndcg@10": SeededScore(value=value, low=value - 0.05, high=value + 0.05)}
    return LeaderboardRow(
        place=1, label=label, is_baseline=False, scores=scores | {"hr@10": SeededScore(value=None)}, seeds=1
    )


STANDINGS = (row("sasrec", 0.24), row("ease", 0.3))


def compared(*, rows: int = 10, digests: dict[str, bool | None] | None = None) -> PublishedComparison:
    return compare_published(
        PROTOCOL,
        STANDINGS,
        first="sasrec",
        label="",
        rows={"train": 1, "valid": 0, "test": rows},
        digests=digests or {},
    )


def test_a_figure_in_our_interval_is_level() -> None:
    found = compared()
    verdicts = {(one.model, one.ours, figure.metric): figure.verdict for one in found.models for figure in one.figures}
    assert verdicts == {
        ("A", "sasrec", "ndcg@10"): "below",
        ("A", "sasrec", "hr@10"): "not comparable",
        ("B", "sasrec", "ndcg@10"): "level",
        ("C", "ease", "ndcg@10"): "above",
        ("D", "absent", "ndcg@10"): "not run",
    }
    assert found.sentences[0] == "sasrec, NDCG@10: level with B; below A."
    assert found.sentences[-1] == "absent, NDCG@10: not run; to compare with D."
    assert found.sources == ["A; B: x", "C; D: y"]


@pytest.mark.parametrize("found", [compared(rows=9), compared(digests={"a.txt": True, "b.txt": False})])
def test_nothing_compares_on_other_data(found: PublishedComparison) -> None:
    verdicts = {figure.verdict for one in found.models if one.ours != "absent" for figure in one.figures}
    assert verdicts == {"not comparable"}
    assert found.data_in_words.startswith("Not the published data")


def test_published_models_and_ours_are_in_one_table() -> None:
    heads, cells = one_table(STANDINGS, compared(), ["ndcg@10", "hr@10"])
    assert [line[:2] for line in cells] == [
        ["A", "published"], ["ease", "ours"], ["B", "published"], ["sasrec", "ours"], ["C", "published"], ["D", "published"],
    ]  # fmt: skip
    assert [line[-1] for line in cells] == [
        "sasrec below",
        "",
        "sasrec level",
        "",
        "ease above",
        "absent not run",
    ]
    assert {len(line) for line in cells} == {len(heads)}
