"""The leaderboard on terminals of several widths: whole numbers, and columns dropped as a whole."""

from typing import Any

import pytest

from recsys_cli.cli.bench import draw
from tests.cli.conftest import drawn

METRICS = ("ndcg@10", "recall@10", "auc")


def standing(place: int, label: str, deviation: float | None, **facts: Any) -> dict[str, Any]:
    score = {"value": 0.25 - place / 100, "deviation": deviation, "low": 0.1234, "high": 0.2987}
    return {
        "place": place, "label": label, "is_baseline": False, "scores": dict.fromkeys(METRICS, score), "seeds": 3,
        "seconds": 321.0, "parameters": 1_234_567, "runs": ["20261121T121227-mlp-dbbd8a2c"], **facts,
    }  # fmt: skip


def board(*, seeds: tuple[int, ...] = (1, 2, 3)) -> dict[str, Any]:
    baseline = {"is_baseline": True, "seeds": 0, "seconds": None, "parameters": None, "runs": []}
    return {
        "metric": "ndcg@10", "better": "higher", "metrics": METRICS, "data": "0123456789abcdef", "dataset": "toys",
        "split": "test",
        "users": 610, "rows": 10_090, "seeds": seeds, "protocol": {}, "report": None,
        "standings": [
            standing(1, "ease", None, deterministic=True, seeds=1),
            standing(2, "mlp embedding_dim=32, hidden_dims=[128,128], epochs=9", 0.0021),
            standing(3, "gru4rec", 0.0034, seeds=2),
            standing(4, "item mean", None, **baseline),
        ],
        "failures": [
            {"label": "gru4rec", "seed": 3, "message": "no memory", "hint": "a smaller batch"},
            *({"label": "fm", "seed": seed, "message": "not finite", "hint": None} for seed in (1, 2, 3)),
        ],
    }  # fmt: skip


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_figures_are_whole_at_any_width(width):
    text = drawn(draw, board(), width)
    assert text.count("0.2400") == text.count("0.2300") == len(METRICS)
    assert text.count("± 0.0021") == len(METRICS)
    assert "any" in text
    assert "2 of 3" in text
    assert ("0.2400 ±" in text) == (width == 200)  # on one line
    assert text.count("0.2987]") == (4 if width >= 100 else 0)
    assert text.count("1.23 M") == (3 if width >= 100 else 0)
    assert ("5 min" in text) == (width >= 80)


def test_failure_is_reported_once_with_seeds_and_hint():
    text = drawn(draw, board(), 200)
    assert "gru4rec, seed 3 failed: no memory (a smaller batch)\n" in text
    assert "fm, seeds 1, 2, 3 failed: not finite\n" in text
    assert "to retry failures" in text


def test_one_seed_has_no_spread():
    text = drawn(draw, {**board(seeds=(1,)), "failures": []}, 200)
    assert (
        text.count("seed")
        == text.count("one seed: the intervals do not include the variance of training over seeds") * 2
    )
    assert "one seed" in text
    assert "to retry" not in text
    assert "±" not in text


def test_model_selected_on_these_rows_is_marked():
    found = board()
    found["standings"][2]["selected"] = ["epoch"]
    text = drawn(draw, found, 200)
    assert "gru4rec †" in text
    assert "ease †" not in text
    assert "† the best epoch was chosen on test, so its metrics are optimistic" in " ".join(text.split())
