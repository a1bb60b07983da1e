"""Published evaluations with ties shuffled and by time: a model that learns the order of a file is found out."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recsys_cli.cli.bench import draw
from tests.cli.conftest import drawn
from tests.event_configs import config_text

DAY, START, ITEMS = 86_400, 1_400_000_000, 40
SASREC = "{name: sasrec, embedding_dim: 16, max_seq_len: 10, train: {epochs: 12, batch_size: 64, learning_rate: 0.01}}"
MORE = f"""
split: {{method: leave-last-out}}
model: {{name: sasrec}}
evaluate: {{k: [10], relevance: all, max_ranking_users: null, bootstrap: 100}}
bench:
  models: [{SASREC}, popularity]
  metrics: [ndcg@10]
protocol:
  paper: planted
  published:
    - {{model: a paper's, source: planted, figures: {{ndcg@10: 0.2}}, ours: sasrec}}
"""


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A file sorted by product, of random items on two days of each user."""
    rng = np.random.default_rng(1)
    rows = [
        (user, int(item), START + DAY * (user % 50 + int(day)))
        for user in range(300)
        for item, day in zip(rng.choice(ITEMS, 10, replace=False), rng.integers(0, 2, 10), strict=True)
    ]
    return write(tmp_path, sorted(rows, key=lambda row: (row[1], row[0])))


def write(folder: Path, rows: list[tuple[int, int, int]], **files: str) -> Path:
    lines = ["user,item,time", *(",".join(map(str, row)) for row in rows)]
    (folder / "ratings.csv").write_text("\n".join(lines) + "\n")
    (folder / "c.yaml").write_text(config_text("ratings.csv", more=MORE))
    return folder / "c.yaml"


def ndcg(found: dict[str, Any], variant: str | None = None) -> dict[str, float]:
    """NDCG@10 of our models, as published or on another split."""
    if variant is None:
        scores = {row["label"]: row["scores"] for row in found["standings"]}
    else:
        (scores,) = [one["scores"] for one in found["published"]["variants"] if one["name"] == variant]
    return {label: of["ndcg@10"]["value"] for label, of in scores.items()}


def test_a_model_of_the_order_of_a_file_is_above_in_file_order_only(recsys, planted, tmp_path):
    ran = recsys("--json", "bench", planted, "--html", "board.html")

    assert ran.code == 0, ran.err
    found = ran.json
    published = found["published"]
    assert [one["name"] for one in published["variants"]] == ["ties", "time"]
    chance = sum(1 / np.log2(rank + 1) for rank in range(1, 11)) / (ITEMS - 9)
    assert ndcg(found)["sasrec"] > 0.3  # ten of the next higher items, one of them the target
    assert ndcg(found, "ties")["sasrec"] == pytest.approx(chance, abs=0.05)
    assert 0 < ndcg(found, "time")["sasrec"] < 0.27
    assert ndcg(found)["popularity"] < 0.05 < ndcg(found, "ties")["popularity"]  # the highest items are rare in train
    (model,) = published["models"]
    assert (model["verdicts"], model["shuffled"]) == ({"ndcg@10": "above"}, {"ndcg@10": "below"})
    ties, time = published["variants"]
    assert ties["text"].startswith("ties: shuffled with seed 42")
    assert (ties["users"], found["users"]) == (300, 300)
    assert "last tenth of all rows" in time["text"]
    page = (tmp_path / "board.html").read_text()
    for text in ("sasrec above by NDCG@10 in file order only, below with ties shuffled", "Ties: shuffled with seed 42"):
        assert text in page
        assert text.casefold() in drawn(draw, found, 200).casefold()
    assert f"{ndcg(found, 'ties')['sasrec']:.4f} [" in drawn(draw, found, 200)

    alone = recsys("--json", "bench", planted, "protocol.variants=[ties]").json
    assert [one["name"] for one in alone["published"]["variants"]] == ["ties"]
    assert ndcg(alone, "ties") == ndcg(found, "ties")  # the runs are there
    none = recsys("--json", "bench", planted, "protocol.variants=[]").json
    assert none["published"]["variants"] == []
    assert none["published"]["models"][0]["shuffled"] == {}
    assert "in file order" not in drawn(draw, none, 200)


@pytest.mark.parametrize(
    ("rows", "change", "note"),
    [
        ([(user, (7 * user + at) % 20, at) for user in range(30) for at in range(8)], (), "the data has no times: its order is"),
        ([(user, (7 * user + at) % 20, START + at) for user in range(30) for at in range(8)],
         ("protocol.variants=[ties]",), "ties not shuffled: no held-out row has the time of the same user's row before"),
        ([(user, (7 * user + at) % 20, START + at // 2) for user in range(30) for at in range(8)],
         ("protocol.variants=[time]", "split={method: temporal, valid: 0.2, test: 0.2}"), "not by time: the split or"),
    ],
)  # fmt: skip
def test_what_the_data_does_not_allow_is_said_in_one_sentence(rows, change, note, recsys, tmp_path):
    found = recsys("--json", "bench", write(tmp_path, rows), "bench.models=[popularity]", *change).json["published"]

    assert found["variants"] == []
    assert [text for text in found["notes"] if text.startswith(note)] == found["notes"][:1]


def test_a_variant_that_fails_is_a_note(recsys, tmp_path):
    """The last row is test and by a new user."""
    rows = [(user, (7 * user + at) % 5, START + at // 2) for user in range(3) for at in range(3)]
    path = write(tmp_path, [*rows, (9, 9, START + DAY)])
    ran = recsys("--json", "bench", path, "bench.models=[ease]", "features.ops.0.freq_threshold=2")
    assert ran.code == 0, ran.err
    assert ran.json["standings"]
    assert any(text.startswith("time: ") for text in ran.json["published"]["notes"])
