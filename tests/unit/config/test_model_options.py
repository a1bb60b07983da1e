"""Options of models with a message of their own."""

from __future__ import annotations

import pytest

from recsys_cli.config import load


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("name: sasrec, time_features: [hour_of_day, hour_of_day]", "model.time_features: has hour_of_day twice"),
        ("name: gru4rec, item_features: [genres, genres]", "model.item_features: has genres twice"),
        ("name: wide-deep, wide: [genres, genres]", "model.wide: has genres twice"),
        ("name: sasrec, item_features: [null]", "model.item_features.0: has to be text, not nothing"),
        ("name: sasrec, item_features: [genres, 3]", "model.item_features.1: has to be text, not 3"),
        ("name: sasrec, item_features: 3", "model.item_features: has to be 'all' or a list, not 3"),
        ("name: sasrec, max_seq_len: 1000000000", "model.max_seq_len: has to be at most 100,000, not 1000000000"),
        ("name: din, history: {max_seq_len: 10001}", "model.history.max_seq_len: has to be at most 10,000, not 10001"),
    ],
)
def test_problems_of_lists_and_lengths(problems, write, model: str, expected: str) -> None:
    (found,) = problems(write(f"model: {{{model}}}\n"))
    assert found == f"x.yaml:10: {expected}"


def test_a_length_at_the_bound_is_allowed(write) -> None:
    assert load(write("model: {name: hstu, max_seq_len: 100000}\n")).model.options["max_seq_len"] == 100_000


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ("candidates: [{name: sasrec, num_layers: 0}]", "candidates.0: sasrec: num_layers: has to be more than 0, not 0"),
        ("candidates: [{name: ease, regularisation: 3}]", "ease: regularisation: unknown key (did you mean regularization?)"),
        (
            "candidates: [{name: gru4rec, item_features: [a, a], train: {epochs: 0, batch: 3}}]",
            "candidates.0: gru4rec: item_features: has a twice",
        ),
        (
            "candidates: [{name: sasrec, train: {epochs: 0, batchsize: 3}}]",
            "candidates.0: sasrec: train.epochs: has to be at least 1, not 0; train.batchsize: unknown key (did you mean",
        ),
        (
            "ranker: {name: dcn-v2, embedding_dim: wide}",
            "ranker: dcn-v2: embedding_dim: has to be a whole number or a mapping (keys with values), not 'wide'",
        ),
        (
            "candidates: [{name: two-stage, candidates: [{name: ease, k: 0}]}]",
            "candidates.0: two-stage: candidates.0.k: has to be more than 0, not 0",
        ),
    ],
)  # fmt: skip
def test_problems_of_a_part_are_described_as_those_of_a_model(problems, write, part: str, expected: str) -> None:
    (found,) = problems(write(f"model: {{name: two-stage, {part}}}\n"))
    assert found.startswith("x.yaml:10: model.")
    assert expected in found
    assert "nput" not in found
