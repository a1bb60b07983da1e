"""Configs of bench models: the entry overrides the config, the config overrides the model's defaults."""

from __future__ import annotations

from pathlib import Path

import pytest

from recsys_cli.config import RunConfig, load, vary, with_model
from recsys_cli.config.load import dump_resolved, model_config_type, train_defaults

MORE = """\
model: {name: mlp, hidden_dims: [7]}
train: {batch_size: 111}
"""
GOOD = """\
bench:
  models:
    - popularity
    - mlp
    - {name: mlp, hidden_dims: [16], train: {batch_size: 222, epochs: 9}}
  seeds: [1, 2]
"""


def cells(config: RunConfig, seed: int = 5) -> list[RunConfig]:
    assert config.bench is not None
    return [with_model(config, model, seed=seed) for model in config.bench.models]


def test_an_entry_replaces_the_model_and_adds_to_train(write) -> None:
    config = load(write(GOOD))
    popularity, plain, wide = cells(config)
    assert popularity.model.name == "popularity"
    assert popularity.model.options == model_config_type("popularity")().model_dump(mode="json")
    assert plain.model.options.get("hidden_dims") != [7]  # of the config's own model
    assert wide.model.options["hidden_dims"] == [16]
    assert [cell.train.batch_size for cell in (popularity, plain, wide)] == [111, 111, 222]
    assert wide.train.epochs == 9
    assert plain.train.epochs == train_defaults(model_config_type("mlp")).get("epochs", config.train.epochs)
    assert {cell.train.seed for cell in cells(config)} == {5}
    assert {cell.bench for cell in cells(config)} == {None}


def test_model_defaults_fill_missing_keys(write, tmp_path: Path) -> None:
    """The default monitor is NDCG for EASE and log loss for mlp, for any model of the config."""
    assert train_defaults(model_config_type("ease"))["monitor"] == "ndcg@10"
    for own in ("ease", "mlp"):
        config = load(
            write("bench: {models: [ease, mlp]}", more=MORE.replace("name: mlp, hidden_dims: [7]", f"name: {own}"))
        )
        assert [cell.train.monitor for cell in cells(config)] == ["ndcg@10", "log_loss"]
        later = tmp_path / "current.yaml"
        later.write_text(dump_resolved(config))
        assert [cell.train.monitor for cell in cells(load(later))] == ["ndcg@10", "log_loss"]
    config = load(write("bench: {models: [ease, mlp]}", more=MORE.replace("train: {", "train: {monitor: loss, ")))
    assert {cell.train.monitor for cell in cells(config)} == {"loss"}


def test_the_current_config_has_the_same_bench(write, tmp_path: Path) -> None:
    config = load(write(GOOD))
    later = tmp_path / "current.yaml"
    later.write_text(dump_resolved(config))
    again = load(later)
    assert again == config
    assert cells(again) == cells(config)
    assert [cell.train.batch_size for cell in cells(load(later, ["train.batch_size=333"]))] == [333, 333, 222]
    assert load(write("")).bench is None


def test_the_current_config_has_the_train_keys_of_the_user(write, tmp_path: Path) -> None:
    """Another model has other defaults: those of mlp are not taken for the user's."""
    config = load(write(""))
    later = tmp_path / "current.yaml"
    later.write_text(dump_resolved(config))
    assert load(later) == config
    other = "model={name: ease}"
    assert load(later, [other]).train == load(write(""), [other]).train != config.train


def test_labels_of_equal_names_have_options_and_a_trial_has_no_bench(write) -> None:
    config = load(write(GOOD))
    assert config.bench is not None
    assert config.bench.labels == ("popularity", "mlp", "mlp hidden_dims=[16], batch_size=222, epochs=9")
    assert vary(config, ["train.epochs=2"]).bench is None


def test_a_label_of_an_entry_is_no_option(write, tmp_path: Path) -> None:
    labeled = "{name: mlp, label: wide mlp+, hidden_dims: [16]}"
    config = load(write(f"bench: {{models: [mlp, {labeled}]}}"))
    assert config.bench is not None
    assert config.bench.labels == ("mlp", "wide mlp+")  # one entry is left without a label: it needs no options
    assert (
        cells(config)[1] == cells(load(write(f"bench: {{models: [{labeled.replace('label: wide mlp+, ', '')}]}}")))[0]
    )
    later = tmp_path / "current.yaml"
    later.write_text(dump_resolved(config))
    assert load(later) == config


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("- poplarity", "bench.models.1: model.name: unknown model 'poplarity' (did you mean popularity?)"),
        ("- {name: mlp, hiden: [3]}", "bench.models.1: model.hiden: unknown key (did you mean hidden_dims?)"),
        ("- {name: mlp, train: {epochs: 0}}", "bench.models.1: train.epochs: has to be at least 1, not 0"),
        ("- {name: mlp, train: {epoch: 3}}", "bench.models.1: train.epoch: unknown key (did you mean epochs?)"),
        ("- {name: mlp, train: {seed: 3}}", "bench.models.1.train: train.seed is the same for all models"),
        ("- {hidden_dims: [3]}", "bench.models.1.name: is missing"),
        ("- popularity", "bench.models: has popularity twice"),
        ("- {name: mlp, label: popularity}", "bench.models: has popularity twice"),
        ("- {name: mlp, label: 'a, b'}", "bench.models.1.label: has to be words of letters, digits"),
        ("- {name: mlp, label: ''}", "bench.models.1.label: has to be words of letters, digits"),
    ],
)
def test_problem_of_an_entry_has_its_line(problems, write, entry: str, expected: str) -> None:
    (found,) = problems(write(f"bench:\n  models:\n    - popularity\n    {entry}\n"))
    assert found.startswith("x.yaml:1")
    assert expected in found


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("metrics: [ndgc@10]", "bench.metrics.0: unknown metric 'ndgc@10' (did you mean ndcg@10?)"),
        ("metrics: [divrsity@10]", "(did you mean diversity@10?); known: auc, "),
        ("metrics: [guac]", "(did you mean gauc?); known: auc, "),
        ("metrics: [ndcg@7]", "bench.metrics: ndcg@7 is not measured: add 7 to evaluate.k"),
        ("metrics: [loss]", "bench.metrics.0: loss is the training objective, not an evaluation metric"),
        ("metrics: [gauc, coverage@0]", "bench.metrics.1: the cut-off of coverage@0 has to be a whole number from 1"),
        ("metrics: [ndcg]", "bench.metrics.0: ndcg needs a cut-off, such as ndcg@10"),
        ("seeds: [1, 1]", "bench.seeds: has 1 twice"),
        ("seeds: []", "bench.seeds: needs at least 1, and has 0"),
        ("models: []", "bench.models: needs at least 1, and has 0"),
    ],
)
def test_problems_of_seeds_and_metrics(problems, write, line: str, expected: str) -> None:
    models = "" if line.startswith("models") else "  models: [popularity]\n"
    (found,) = problems(write(f"bench:\n{models}  {line}\n"))
    assert expected in found


def test_problem_of_the_config_is_reported_once(problems, write) -> None:
    (found,) = problems(write(GOOD, more=MORE.replace("hidden_dims: [7]", "hiden: [7]")))
    assert found == "x.yaml:10: model.hiden: unknown key (did you mean hidden_dims?)"
