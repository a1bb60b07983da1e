"""Messages about invalid search spaces: all problems at once, each with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from recsys_cli.config import RunConfig, dump, load
from recsys_cli.config.load import vary
from recsys_cli.config.tune import Values
from recsys_cli.errors import ConfigError

MORE = """\
train: {embedding_weight_decay: 0.1}
tune:
  space:
"""
GOOD = """\
    train.learning_rate: {low: 1e-4, high: 0.1, log: true}
    train.batch_size: {low: 256, high: 1024, step: 256}
    model.hidden_dims: {choices: [[64], [128, 128]]}
    train.sparse_embeddings: {choices: [true, false]}
"""


def test_a_good_space_is_read_and_written(write) -> None:
    config = load(write(GOOD))
    assert config.tune is not None
    assert config.tune.space["train.learning_rate"] == Values(low=1e-4, high=0.1, log=True)
    assert config.tune.space["train.batch_size"].is_whole
    assert not config.tune.space["train.learning_rate"].is_whole
    assert RunConfig.model_validate(config.model_dump(mode="json")) == config
    Path("again.yaml").write_text(dump(config))
    assert load(Path("again.yaml")) == config


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        ("train.learning_rate: {low: 0, high: 1}", ": train.learning_rate: has to be more than 0, not 0"),
        ("model.dropout: {low: 0.0, high: 1}", ": model.dropout: has to be less than 1, not 1"),
        (
            "train.learningrate: {low: 0.1, high: 1.0}",
            ": train.learningrate: unknown key (did you mean learning_rate?)",
        ),
        ("model.hiden: {choices: [[64]]}", ": model.hiden: unknown key (did you mean hidden_dims?)"),
        (
            "model.hidden_dims: {choices: [[64], [64, wide]]}",
            ": model.hidden_dims.1: has to be a whole number, not 'wide'",
        ),
        ("model.hidden_dims: {low: 1, high: 2}", ": model.hidden_dims: has to be a list, not 1"),
        (
            "train.batch_size: {low: 16.0, high: 1000}",
            ": train.batch_size: has to be a whole number or 'auto', not 624.112",
        ),
        (
            "train.schedule: {choices: [cosine, {name: step, epochs: 2}, plateu]}",
            ": train.schedule: unknown name 'plateu' (did you mean plateau?)",
        ),
        (
            "learning_rate: {low: 0.1, high: 1.0}",
            ": learning_rate: only keys of model and train can be searched (did you mean train.learning_rate?)",
        ),
        ("split.seed: {low: 1, high: 3}", ": split.seed: only keys of model and train can be searched"),
        ("train.monitor: {choices: [auc, loss]}", ": train.monitor: compares the trials"),
        (
            "train.epochs.more: {low: 1, high: 3}",
            ": train.epochs.more: 'train.epochs.more=1': train.epochs is 3 and has no key 'more'",
        ),
        ("train.max_grad_norm: {low: 5, high: 1}", ".train.max_grad_norm: low has to be less than high, and 5 is not"),
        ("train.max_grad_norm: {low: 1, hi: 5}", ".train.max_grad_norm.hi: unknown key (did you mean high?)"),
        ("train.max_grad_norm: {low: 1}", ".train.max_grad_norm: needs low and high, or choices"),
        ("train.max_grad_norm: {low: 1, high: big}", ".train.max_grad_norm.high: has to be a number, not 'big'"),
        ("train.max_grad_norm: {low: 1, high: .inf}", ".train.max_grad_norm.high: has to be a number, not inf"),
        (
            "train.max_grad_norm: {low: 0, high: 5, log: true}",
            ".train.max_grad_norm: log needs a low above 0, and no step",
        ),
        (
            "train.max_grad_norm: {low: 1, high: 5, step: 9}",
            ".train.max_grad_norm: step has to be more than 0 and at most",
        ),
        (
            "train.max_grad_norm: {low: 1, choices: [1]}",
            ".train.max_grad_norm: has to be a range (low, high) or choices",
        ),
        ("train.max_grad_norm: {choices: []}", ".train.max_grad_norm.choices: needs at least 1, and has 0"),
        ("train.max_grad_norm: 5", ".train.max_grad_norm: has to be a mapping"),
    ],
)
def test_problem_has_its_line(problems, write, entry: str, line: str) -> None:
    (found,) = problems(write(f"    {entry}\n"), "train.epochs=3")
    assert found.startswith(f"x.yaml:13: tune.space{line}")


def test_all_problems_of_all_sections_are_reported(problems, write) -> None:
    path = write("    train.max_grad_norm: {low: 5, high: 1}\n    train.sparse_embeddings: {choices: [maybe]}\n")
    assert problems(path, "tune.trails=3", "train.epochs=0") == [
        "x.yaml:13: tune.space.train.max_grad_norm: low has to be less than high, and 5 is not less than 1",
        "x.yaml:14: tune.space: train.sparse_embeddings: has to be true or false, not 'maybe'",
        "override train.epochs=0: train.epochs: has to be at least 1, not 0",
        "override tune.trails=3: tune.trails: unknown key (did you mean trials?)",
    ]


def test_space_of_an_override_is_validated(problems, write) -> None:
    (found,) = problems(write(GOOD), "tune.space={train.epochs: {low: 0, high: 2}}")
    assert found.endswith(": train.epochs: has to be at least 1, not 0")


def test_section_without_space_leaves_it_to_the_model(write) -> None:
    tune = load(write(GOOD), ["tune={trials: 3}"]).tune
    assert tune is not None
    assert (tune.trials, tune.space) == (3, {})


def test_vary_applies_overrides_and_drops_tune(write) -> None:
    config = load(write(GOOD))
    changed = vary(config, ["model.hidden_dims=[64]", "train.learning_rate=1e-05"])
    assert changed.tune is None
    assert changed.model.options == {**config.model.options, "hidden_dims": [64]}
    assert changed.train == config.train.model_copy(update={"learning_rate": 1e-5})
    assert changed.features == config.features


def test_invalid_combination_fails_in_its_trial(write) -> None:
    with pytest.raises(ConfigError, match="embedding_weight_decay is not available with sparse"):
        vary(load(write(GOOD)), ["train.sparse_embeddings=true"])
