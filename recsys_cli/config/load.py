"""From a YAML file and overrides to a RunConfig, with all problems reported at once and in our words."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from recsys_cli.config import yaml12
from recsys_cli.config.bench import BenchModel
from recsys_cli.config.document import OF_OVERRIDE, Document, Key, override, read
from recsys_cli.config.grid import SEARCHES, bench_problems, cell
from recsys_cli.config.problems import describe
from recsys_cli.config.section import Section
from recsys_cli.config.sections import ModelConfig, RunConfig
from recsys_cli.config.space import space_problems
from recsys_cli.data import open_source
from recsys_cli.errors import ConfigError
from recsys_cli.metrics.label_task import REGRESSION
from recsys_cli.metrics.named import check_additional, find_metric
from recsys_cli.plugins import guarded, require_subclass
from recsys_cli.registry import DEFAULT_MODEL, ENGINES, MODELS, lookup
from recsys_cli.registry import load as load_component


def load(path: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """Read, override and validate a config, the options of its dataset and model included.

    Raises:
        ConfigError: With every problem, a line each: where, which key, what is wrong, the nearest known key.
    """
    document = read(path)
    override(document, overrides)
    return validate(document, source=path)


def from_values(values: Mapping[str, Any], overrides: Sequence[str] = ()) -> RunConfig:
    """Validate the sections of a config as plain values; see `load`."""
    document = Document(deepcopy(dict(values)))
    override(document, overrides)
    return validate(document, source=Path("this config"))


def validate(document: Document, *, source: Path) -> RunConfig:
    """Validate plain values; see `load`."""
    # A section whose lines are all commented out is one that is left out.
    document.values = {name: value for name, value in document.values.items() if value is not None}
    config, problems = _check(document)
    for searched in (space_problems, bench_problems):
        problems += searched(document, lambda changed: _check(changed)[1])
    if problems or config is None:
        what = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        message = "\n  ".join([f"{source}: {what}", *sorted(problems, key=_line_number)])
        if all(problem.startswith(OF_OVERRIDE) for problem in problems):
            raise ConfigError(message, hint=f"mend it on the line; all keys that there are: recsys config {source}")
        raise ConfigError(message, hint=f"mend it, then check it with: recsys validate {source}")
    return config.model_copy(update={"model": spelled_out(config.model)})


def spelled_out(model: ModelConfig) -> ModelConfig:
    """Return a model section with every option of the model, so that a run is told apart by what it learnt with."""
    with guarded(f"the options of {model.name}"):
        options = model_config(model.name, model.options).model_dump(mode="json")
    return ModelConfig.model_validate({**options, "name": model.name, "embedding": model.embedding})


def vary(config: RunConfig, overrides: Sequence[str]) -> RunConfig:
    """Return a config with some values replaced, and without what it says of tuning and benches.

    Raises:
        ConfigError: They are not good for it.
    """
    document = Document(_values(config))
    document.values = {name: section for name, section in document.values.items() if name not in SEARCHES}
    override(document, overrides)
    return validate(document, source=Path("this trial"))


def with_model(config: RunConfig, model: BenchModel, *, seed: int) -> RunConfig:
    """Return a config whose model is one of a bench, without what it says of benches and tuning.

    Args:
        config: Says how models are trained where neither the entry nor the model's own defaults do.
        model: An entry of the bench.
        seed: What its training begins with.

    Raises:
        ConfigError: They do not go together.
    """
    return validate(Document(cell(_written(config), model, seed=seed)), source=Path(f"the bench's {model.name}"))


def dump(config: RunConfig) -> str:
    """Write a config as YAML, with every default spelled out; `load` gives the same config back."""
    return yaml12.write(_values(config))


def dump_to_go_on(config: RunConfig) -> str:
    """Write a config as YAML for the commands that follow: as `dump`, but a bench leaves it to each model how it is trained."""
    return yaml12.write(_written(config) if config.bench is not None else _values(config))


def _values(config: RunConfig) -> dict[str, Any]:
    """Return a config as plain values; a section that is not there has none."""
    return {name: value for name, value in config.model_dump(mode="json").items() if value is not None}


def _written(config: RunConfig) -> dict[str, Any]:
    """Return a config as plain values, with nothing in its train section but what was written there."""
    values = _values(config)
    return {
        **values,
        "train": {key: values["train"][key] for key in values["train"] if key in config.train.model_fields_set},
    }


def _check(document: Document) -> tuple[RunConfig | None, list[str]]:
    try:
        config = RunConfig.model_validate(_with_bench_defaults(_with_train_defaults(document.values)))
        # What the model's defaults have set was not written, and another model has others.
        config.train.model_fields_set.intersection_update(document.values.get("train") or ())
        return config, _component_problems(document)
    except ValidationError as error:
        return None, [*describe(error, RunConfig, document), *_component_problems(document)]


def _with_train_defaults(values: dict[str, Any]) -> dict[str, Any]:
    """Return plain values with what the model's own Config and the label say of the train section where that says nothing."""
    model, train = values.get("model", {}), values.get("train", {})
    if not isinstance(train, dict):
        return values
    defaults: dict[str, Any] = {"monitor": REGRESSION.default.name} if _predicts_a_number(values) else {}
    if isinstance(model, dict) and isinstance(name := model.get("name", DEFAULT_MODEL), str):
        with suppress(ConfigError):  # which is told of as a problem of the model
            defaults |= train_defaults(model_config_type(name))
    kept = {key: value for key, value in defaults.items() if key not in _out_of_place(train)}
    return {**values, "train": {**kept, **train}} if kept else values


def _out_of_place(train: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the keys whose defaults are of another way to update tables than the train section asks for."""
    if train.get("sparse_embeddings") is False or train.get("embedding_weight_decay"):
        return ("sparse_embeddings", "embedding_optimizer", "embedding_learning_rate")
    return ("embedding_learning_rate",) if "embedding_optimizer" in train else ()


def _with_bench_defaults(values: dict[str, Any]) -> dict[str, Any]:
    """Return plain values with the figures of a bench on a label that is a number, where the config names none."""
    bench = values.get("bench")
    if not isinstance(bench, dict) or "metrics" in bench or not _predicts_a_number(values):
        return values
    return {**values, "bench": {"metrics": list(REGRESSION.leaderboard), **bench}}


def _predicts_a_number(values: dict[str, Any]) -> bool:
    """Whether the main label of plain values is a number in units of its own."""
    features = values.get("features")
    label = features.get("label") if isinstance(features, dict) else None
    main = label[0] if isinstance(label, list) and label else label
    return isinstance(main, dict) and main.get("task") == "regression"


def train_defaults(model: type[BaseModel]) -> Mapping[str, Any]:
    """Return how a model is trained where the train section does not say: what its Config has as `train_defaults`."""
    return getattr(model, "train_defaults", {})


def model_config_type(name: str) -> type[BaseModel]:
    """Return the class of a model's own options, without loading torch.

    Args:
        name: A name of the registry, or what leads to the package of another author (docs/security.md).

    Raises:
        ConfigError: The model is not known or not trusted, or its Config is no `Section`.
    """
    path = f"{lookup(MODELS, name, what='model')}.config:Config"
    kind: type[BaseModel] = load_component(path)
    require_subclass(kind, Section, path)
    if not isinstance(train_defaults(kind), Mapping):
        raise ConfigError(f"train_defaults of {path!r} is no mapping")
    return kind


def model_config(name: str, options: dict[str, Any]) -> BaseModel:
    """Build a model's own config from its options, without loading torch.

    Raises:
        ConfigError: The model is not known.
        ValidationError: An option is wrong.
    """
    kind = model_config_type(name)
    try:
        return kind.model_validate(options)
    except ValidationError:
        raise
    except Exception as error:  # a validator of another package may raise what it likes
        raise ConfigError(f"the options of {name} cannot be checked: {type(error).__name__}: {error}") from error


def _line_number(problem: str) -> float:
    """Order problems as they stand in the file; those of overrides come after."""
    found = re.match(r".*?:(\d+): ", problem)
    return int(found[1]) if found else math.inf


def _component_problems(document: Document) -> list[str]:
    """Check what the sections leave to their components: dataset and model options, the names of engine and metric."""
    problems: list[str] = []
    dataset, model, etl, train = (document.values.get(name) for name in ("dataset", "model", "etl", "train"))
    if isinstance(dataset, dict) and isinstance(dataset.get("name"), str):
        problems += _attempt(lambda: _open_dataset(dataset), document, ("dataset",))
    if isinstance(model, dict) and isinstance(model.get("name", DEFAULT_MODEL), str):
        problems += _model_problems(document, model)
    if isinstance(etl, dict) and isinstance(etl.get("engine"), str) and etl["engine"] != "auto":
        problems += _attempt(lambda: lookup(ENGINES, etl["engine"], what="engine"), document, ("etl", "engine"))
    if isinstance(train, dict) and isinstance(train.get("monitor"), str):
        problems += _attempt(lambda: find_metric(train["monitor"]), document, ("train", "monitor"))
    return [*problems, *_metric_problems(document)]


def _metric_problems(document: Document) -> list[str]:
    """Check the metrics of other packages that the evaluation adds."""
    section = document.values.get("evaluate")
    names = section.get("metrics") if isinstance(section, dict) else None
    of_numbers = _predicts_a_number(document.values)
    return [
        problem
        for position, name in enumerate(names if isinstance(names, list) else ())
        if isinstance(name, str)
        for problem in _attempt(
            partial(check_additional, name, of_numbers=of_numbers), document, ("evaluate", "metrics", position)
        )
    ]


def _open_dataset(section: dict[str, Any]) -> None:
    open_source(section["name"], {key: value for key, value in section.items() if key != "name"})


def _model_problems(document: Document, section: dict[str, Any]) -> list[str]:
    name = section.get("name", DEFAULT_MODEL)
    # Its embedding is ours, and checked with the sections.
    options = {key: value for key, value in section.items() if key not in {"name", "embedding"}}
    try:
        return _attempt(lambda: model_config(name, options), document, ("model",))
    except ValidationError as error:
        return describe(error, model_config_type(name), document, prefix=("model",))


def _attempt(check: Callable[[], object], document: Document, section: Key) -> list[str]:
    try:
        check()
    except ConfigError as error:
        if isinstance(error.__cause__, ValidationError):  # a dataset put its own words around it; ours have lines
            problems = describe(error.__cause__, None, document, prefix=section)
            return [f"{problem}; {error.hint}" if error.hint else problem for problem in problems]
        key = section if len(section) > 1 else (*section, "name")
        where = document.place(key)
        hint = f"; {error.hint}" if error.hint else ""
        return [f"{where + ': ' if where else ''}{'.'.join(map(str, key))}: {error.message}{hint}"]
    return []
