"""Published figures: values in the range of their metric, and names of models that exist."""

from __future__ import annotations

import pytest

from recsys_cli.config import load
from recsys_cli.errors import ConfigError

PROTOCOL = """\
bench:
  models: [ease, {name: sasrec, label: sasrec-tuned}]
protocol:
  paper: here
"""
ROW = PROTOCOL + "  published:\n    - {model: A, source: here, %s}\n"


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("figures: {ndcg@10: .nan}", "figures.ndcg@10: has to be a finite number, not nan"),
        ("figures: {rmse: .inf}", "figures.rmse: has to be a finite number, not inf"),
        ("figures: {ndcg@10: -0.1}", "figures.ndcg@10: has to be at least 0, not -0.1"),
        ("figures: {ndcg@10: 5}", "figures.ndcg@10: has to be at most 1, not 5; write 31 % as 0.31"),
        ("figures: {psndcg@10: 1.5}", "figures.psndcg@10: has to be at most 1, not 1.5"),
        ("figures: {capped_recall@20: 39.5}", "figures.capped_recall@20: has to be at most 1, not 39.5"),
        ("figures: {impression_ndcg@5: 31}", "figures.impression_ndcg@5: has to be at most 1, not 31"),
        ("figures: {nope@10: 0.1}", "figures.nope@10: unknown metric 'nope@10'"),
        ("figures: {ndgc@10: 0.1}", "unknown metric 'ndgc@10' (did you mean ndcg@10?)"),
        ("figures: {ndcg@10: 0.1}, ours: sasrek", "ours: 'sasrek' is no label of bench.models and no model (did you mean sasrec?)"),
        ("figures: {ndcg@10: 0.1}, ours: sasrec-tunde", "(did you mean sasrec-tuned?); labels of the bench: ease, sasrec-tuned"),
    ],
)  # fmt: skip
def test_problems_of_figures_have_their_line(problems, write, row: str, expected: str) -> None:
    (found,) = problems(write(ROW % row))
    assert found.startswith("x.yaml:15: protocol.published.0.")
    assert expected in found


def test_a_label_replaced_by_an_override_is_named(write) -> None:
    path = write(ROW % "figures: {ndcg@10: 0.1}, ours: sasrec-tuned")
    with pytest.raises(
        ConfigError, match=r"the override of bench.models replaced all labels: add {name: MODEL, label: "
    ) as e:
        load(path, ["bench.models=[ease, sasrec]"])
    assert "sasrec-tuned} to it; labels of the bench: ease, sasrec;" in str(e.value)
    kept = load(path, ["bench.models=[{name: sasrec, label: sasrec-tuned, num_layers: 1}]"])
    assert kept.bench is not None
    assert kept.bench.labels == ("sasrec-tuned",)


def test_a_split_has_rows(problems, write) -> None:
    (found,) = problems(write(ROW % "figures: {ndcg@10: 0.1}" + "  rows: {test: -3}\n"))
    assert found == "x.yaml:16: protocol.rows.test: has to be more than 0, not -3"


@pytest.mark.parametrize("ours", ["ease", "sasrec", "sasrec-tuned", "hstu", "popularity"])
def test_ours_is_a_label_or_a_model(write, ours: str) -> None:
    """Models outside `bench.models` are allowed: a partial bench reports them as not run."""
    config = load(write(ROW % f"figures: {{ndcg@10: 1, rmse: 3, novelty@10: 12.5, hr@10: 0}}, ours: {ours}"))
    assert config.protocol is not None
    assert config.protocol.published[0].ours == ours
