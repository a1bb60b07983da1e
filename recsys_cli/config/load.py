"""From a YAML file and overrides to a RunConfig, with all problems reported at once and in our words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from recsys_cli.config.document import Document, Key, override, read
from recsys_cli.config.problems import describe
from recsys_cli.config.sections import RunConfig
from recsys_cli.errors import ConfigError
from recsys_cli.registry import DATASETS, ENGINES, MODELS, lookup
from recsys_cli.registry import load as load_component


def load(path: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """Read, override and validate a config, the options of its dataset and model included.

    Raises:
        ConfigError: With every problem, a line each: where, which key, what is wrong, the nearest known key.
    """
    document = read(path)
    override(document, overrides)
    return validate(document, source=path)


def validate(document: Document, *, source: Path) -> RunConfig:
    """Validate plain values; see `load`."""
    problems: list[str] = []
    config: RunConfig | None = None
    try:
        config = RunConfig.model_validate(document.values)
    except ValidationError as error:
        problems += describe(error, RunConfig, document)
    problems += _component_problems(document)
    if problems or config is None:
        what = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        raise ConfigError(f"{source}: {what}\n" + "\n".join(problems), hint=f"recsys validate {source} checks it again")
    return config


def dump(config: BaseModel) -> str:
    """Write a config as YAML, with every default spelled out; `load` gives the same config back."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def model_config(name: str, options: dict[str, Any]) -> BaseModel:
    """Build a model's own config from its options, without loading torch.

    Raises:
        ConfigError: The model is not known.
        ValidationError: An option is wrong.
    """
    package = lookup(MODELS, name, what="model") if ":" not in name and name in MODELS else name
    if package == name and "." not in name:
        lookup(MODELS, name, what="model")
    built: BaseModel = load_component(f"{package}.config:Config").model_validate(options)
    return built


def _component_problems(document: Document) -> list[str]:
    """Check what the sections leave to their components: dataset and model options, the engine's name."""
    values = document.values
    problems: list[str] = []
    dataset, model, etl = (values.get(name) for name in ("dataset", "model", "etl"))
    if isinstance(dataset, dict) and isinstance(dataset.get("name"), str):
        options = {key: value for key, value in dataset.items() if key != "name"}
        problems += _attempt(lambda: _dataset(dataset["name"], options), document, ("dataset",))
    if isinstance(model, dict):
        options = {key: value for key, value in model.items() if key != "name"}
        problems += _attempt(lambda: model_config(str(model.get("name", "mlp")), options), document, ("model",))
    if isinstance(etl, dict) and isinstance(etl.get("engine"), str) and etl["engine"] != "auto":
        problems += _attempt(lambda: lookup(ENGINES, etl["engine"], what="engine"), document, ("etl", "engine"))
    return problems


def _dataset(name: str, options: dict[str, Any]) -> None:
    load_component(lookup(DATASETS, name, what="dataset"))(name, options)


def _attempt(check: Any, document: Document, section: Key) -> list[str]:
    try:
        check()
    except ValidationError as error:
        return describe(error, None, document, prefix=section)
    except ConfigError as error:
        where = document.place(section)
        name = ".".join(map(str, section))
        hint = f" — {error.hint}" if error.hint else ""
        return [f"  {where}: {name}: {error.message}{hint}"]
    return []
