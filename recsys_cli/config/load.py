"""Loads a RunConfig from a YAML file and overrides; all problems are reported at once."""

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
from recsys_cli.config.bench import SEARCHES, BenchModel, bench_problems, cell
from recsys_cli.config.document import OF_OVERRIDE, Document, Key, limit_problems, override, read
from recsys_cli.config.problems import describe
from recsys_cli.config.protocol import protocol_checks
from recsys_cli.config.section import Section
from recsys_cli.config.sections import AutoConfig, ModelConfig, RunConfig
from recsys_cli.config.tune import Values, space_problems
from recsys_cli.data import open_source
from recsys_cli.data.raw_files import without_secret
from recsys_cli.errors import ConfigError
from recsys_cli.metrics.named import REGRESSION, check_additional, find_metric
from recsys_cli.plugins import guarded, require_subclass
from recsys_cli.registry import AUTO, DEFAULT_MODEL, ENGINES, find_model, lookup
from recsys_cli.registry import load as load_component


def load(path: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """Read, override and validate a config, including the options of its dataset and model.

    Raises:
        ConfigError: The config is invalid; one line per problem with location, key, reason and the closest valid key.
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
    # A section with all lines commented out is null in YAML; treat it as absent.
    document.values = {name: value for name, value in document.values.items() if value is not None}
    if problems := limit_problems(document):
        raise ConfigError("\n  ".join([f"{source}: values that YAML cannot hold", *problems]), hint="fix these keys")
    config, problems = _check(document)
    for section, search_problems in (("tune", space_problems), ("bench", bench_problems)):
        if section in document.values:
            problems += search_problems(document, lambda changed: _check(changed)[1])
    if problems or config is None:
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        message = without_secret("\n  ".join([f"{source}: {count}", *sorted(problems, key=_line_number)]))
        shown = source if source.is_file() else "FILE"  # sections from Python have no file
        if all(problem.startswith(OF_OVERRIDE) for problem in problems):
            raise ConfigError(message, hint=f"fix the override; `recsys config {shown}` lists every key")
        check = f"fix the config, then check it: recsys validate {source}"
        raise ConfigError(
            message, hint=check if shown is source else "fix these keys; `recsys config FILE` lists every key"
        )
    return config.model_copy(update={"model": spelled_out(config.model, split=config.split.method)})


def spelled_out(model: ModelConfig, *, split: str | None = None) -> ModelConfig:
    """Return a model section with all options of the model, defaults included, for the key of a run.

    A `for_split` of the model's Config chooses defaults by the method of the split.
    """
    with guarded(f"the options of {model.name}"):
        config = model_config(model.name, model.options)
        for_split: Callable[[str], BaseModel] | None = getattr(config, "for_split", None)
        if split is not None and for_split is not None:
            config = for_split(split)
        options = config.model_dump(mode="json")
    return ModelConfig.model_validate({**options, "name": model.name, "embedding": model.embedding})


def vary(config: RunConfig, overrides: Sequence[str]) -> RunConfig:
    """Return a config with overrides applied, without its tune and bench sections.

    Raises:
        ConfigError: An override is invalid.
    """
    document = Document(_values(config))
    document.values = {name: section for name, section in document.values.items() if name not in SEARCHES}
    override(document, overrides)
    return validate(document, source=Path("this trial"))


def with_model(config: RunConfig, model: BenchModel, *, seed: int) -> RunConfig:
    """Return the config of one bench model, without the bench and tune sections.

    An entry of the bench overrides the config, whose train section has precedence over the model's own defaults.

    Raises:
        ConfigError: The model does not support the config.
    """
    return validate(Document(cell(_written(config), model, seed=seed)), source=Path(f"the bench's {model.name}"))


def dump(config: RunConfig) -> str:
    """Return a config as YAML with all defaults; `load` restores the same config."""
    return yaml12.write(_values(config))


def dump_resolved(config: RunConfig) -> str:
    """Return a config as YAML for later commands: like `dump`, but train defaults stay up to the model."""
    return yaml12.write(_written(config))


def _values(config: RunConfig) -> dict[str, Any]:
    """Return a config as plain values, without absent sections."""
    return {name: value for name, value in config.model_dump(mode="json").items() if value is not None}


def _written(config: RunConfig) -> dict[str, Any]:
    """Return a config as plain values; the train section contains only explicitly set keys."""
    values = _values(config)
    return {
        **values,
        "train": {key: values["train"][key] for key in values["train"] if key in config.train.model_fields_set},
    }


def _check(document: Document) -> tuple[RunConfig | None, list[str]]:
    try:
        config = RunConfig.model_validate(_with_bench_defaults(_with_train_defaults(document.values)))
        # Defaults of the model are not explicitly set: another model has different ones.
        config.train.model_fields_set.intersection_update(document.values.get("train") or ())
        return config, _component_problems(document)
    except ValidationError as error:
        return None, [*describe(error, RunConfig, document), *_component_problems(document)]


def _with_train_defaults(values: dict[str, Any]) -> dict[str, Any]:
    """Return plain values with missing train keys filled from the model's and the label's defaults."""
    model, train = values.get("model", {}), values.get("train", {})
    if not isinstance(train, dict):
        return values
    defaults: dict[str, Any] = {}
    if isinstance(model, dict) and isinstance(name := model.get("name", DEFAULT_MODEL), str):
        with suppress(ConfigError):  # reported as a problem of the model
            defaults |= train_defaults(model_config_type(name))
    numeric = _predicts_a_number(values) and "@" not in defaults.get("monitor", "")
    defaults |= {"monitor": REGRESSION.default.name} if numeric else {}
    kept = {key: value for key, value in defaults.items() if key not in _conflicting_defaults(train)}
    return {**values, "train": {**kept, **train}} if kept else values


def _conflicting_defaults(train: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the default keys in conflict with the embedding optimizer of the train section."""
    if train.get("sparse_embeddings") is False or train.get("embedding_weight_decay"):
        return ("sparse_embeddings", "embedding_optimizer", "embedding_learning_rate")
    return ("embedding_learning_rate",) if "embedding_optimizer" in train else ()


def _with_bench_defaults(values: dict[str, Any]) -> dict[str, Any]:
    """Return plain values with default bench metrics for a numeric label."""
    if isinstance(bench := values.get("bench"), dict) and "metrics" not in bench and _predicts_a_number(values):
        return {**values, "bench": {"metrics": list(REGRESSION.leaderboard), **bench}}
    return values


def _predicts_a_number(values: dict[str, Any]) -> bool:
    """Whether the main label is a regression target."""
    features = values.get("features")
    label = features.get("label") if isinstance(features, dict) else None
    main = label[0] if isinstance(label, list) and label else label
    return isinstance(main, dict) and main.get("task") == "regression"


def train_defaults(model: type[BaseModel]) -> Mapping[str, Any]:
    """Return the model's own defaults of the train section (`train_defaults` of its Config)."""
    return getattr(model, "train_defaults", {})


def search_space(model: type[BaseModel]) -> Mapping[str, Values]:
    """Return the model's default search space of `recsys tune` (`search_space` of its Config); empty without one."""
    return {key: Values.model_validate(values) for key, values in getattr(model, "search_space", {}).items()}


def model_config_type(name: str) -> type[BaseModel]:
    """Return the Config class of a model without importing torch; of a plugin by entry point or import path (docs/security.md).

    Raises:
        ConfigError: The model is unknown or not trusted, or its Config is no `Section`.
    """
    if name == AUTO:
        return AutoConfig
    path = find_model(name).config
    kind: type[BaseModel] = load_component(path)
    require_subclass(kind, Section, path)
    if not isinstance(train_defaults(kind), Mapping):
        raise ConfigError(f"train_defaults of {path!r} is not a mapping")
    return kind


def model_config(name: str, options: dict[str, Any]) -> BaseModel:
    """Build the Config of a model from its options without importing torch.

    Raises:
        ConfigError: The model is unknown.
        ValidationError: An option is invalid.
    """
    kind = model_config_type(name)
    try:
        return kind.model_validate(options)
    except ValidationError:
        raise
    except Exception as error:  # a validator of a plugin may raise any exception
        raise ConfigError(f"cannot validate the options of {name}: {type(error).__name__}: {error}") from error


def _line_number(problem: str) -> float:
    """Return the sort key of a problem: its line in the file; overrides come last."""
    match = re.match(r".*?:(\d+): ", problem)
    return int(match[1]) if match else math.inf


def _component_problems(document: Document) -> list[str]:
    """Validate dataset and model options, the names of engine and metrics, and the figures of a protocol."""
    problems: list[str] = []
    dataset, model, etl, train = (document.values.get(name) for name in ("dataset", "model", "etl", "train"))
    if isinstance(dataset, dict) and isinstance(dataset.get("name"), str):
        given = {key: value for key, value in dataset.items() if key != "name"}
        problems += _problems_of(lambda: open_source(dataset["name"], given), document, ("dataset",))
    if isinstance(model, dict) and isinstance(model.get("name", DEFAULT_MODEL), str):
        problems += _model_problems(document, model)
    if isinstance(etl, dict) and isinstance(etl.get("engine"), str) and etl["engine"] != "auto":
        problems += _problems_of(lambda: lookup(ENGINES, etl["engine"], what="engine"), document, ("etl", "engine"))
    if isinstance(train, dict) and isinstance(train.get("monitor"), str):
        problems += _problems_of(lambda: find_metric(train["monitor"]), document, ("train", "monitor"))
    if "protocol" in document.values:
        replaced = document.location(("bench", "models")).startswith(OF_OVERRIDE)
        for key, check in protocol_checks(document.values, replaced=replaced):
            problems += _problems_of(check, document, key)
    return [*problems, *_metric_problems(document)]


def _metric_problems(document: Document) -> list[str]:
    """Validate the plugin metrics of the evaluation."""
    section = document.values.get("evaluate")
    names = section.get("metrics") if isinstance(section, dict) else None
    of_numbers = _predicts_a_number(document.values)
    return [
        problem
        for position, name in enumerate(names if isinstance(names, list) else ())
        if isinstance(name, str)
        for problem in _problems_of(
            partial(check_additional, name, of_numbers=of_numbers), document, ("evaluate", "metrics", position)
        )
    ]


def _model_problems(document: Document, section: dict[str, Any]) -> list[str]:
    name = section.get("name", DEFAULT_MODEL)
    # `embedding` is common to all models and validated with the sections.
    options = {key: value for key, value in section.items() if key not in {"name", "embedding"}}
    try:
        return _problems_of(lambda: model_config(name, options), document, ("model",))
    except ValidationError as error:
        return describe(error, model_config_type(name), document, prefix=("model",))


def _problems_of(check: Callable[[], object], document: Document, section: Key) -> list[str]:
    try:
        check()
    except ConfigError as error:
        if isinstance(error.__cause__, ValidationError):  # from a dataset; describe adds the lines
            problems = describe(error.__cause__, None, document, prefix=section)
            return [f"{problem}; {error.hint}" if error.hint else problem for problem in problems]
        key = section if len(section) > 1 else (*section, "name")
        location = document.location(key)
        hint = f"; {error.hint}" if error.hint else ""
        return [f"{location + ': ' if location else ''}{'.'.join(map(str, key))}: {error.message}{hint}"]
    return []
