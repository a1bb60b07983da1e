"""The public names, one per line; `python tests/api/frozen.py` rewrites the frozen lists."""

from __future__ import annotations

import inspect
import io
import json
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from typer.main import get_command

import recsys_cli as recsys
from recsys_cli import registry
from recsys_cli.cli import app, options
from recsys_cli.config import RunConfig
from recsys_cli.config.load import model_config_type
from recsys_cli.data import options_of
from recsys_cli.evaluation import Evaluation
from recsys_cli.tabular import Tabular

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
_ARTIFACTS = (recsys.PreparedData, recsys.TrainedRun, recsys.Recommendations, recsys.LoadedBundle)
_RESULTS = (recsys.Evaluation, recsys.Comparison)


def python_names() -> Iterator[str]:
    """Yield functions with their parameters, and classes with the methods of the API."""
    for name in sorted(recsys._API):
        found = getattr(recsys, name)
        if inspect.isclass(found):
            yield name
            own = {**vars(found)} if found in _ARTIFACTS else {}
            own |= vars(Tabular) if issubclass(found, Tabular) else {}
            own |= {key: value for key, value in vars(found).items() if found in _RESULTS and not _is_field(found, key)}
            yield from (f"{name}.{_shown(key, value)}" for key, value in sorted(own.items()) if _is_public(key, value))
        else:
            yield _shown(name, found)


def config_keys() -> Iterator[str]:
    """Yield the keys of a config, section by section, and those of each split, op, schedule, model and dataset."""
    yield from RunConfig.model_fields
    yield from _options("{}", options.sections())
    yield from _options("split: {}", options.splits())
    yield from _options("op: {}", options.ops())
    yield from _options("train.schedule: {}", options.schedules())
    yield from _options("model: {}", {name: model_config_type(name) for name in registry.MODELS})
    datasets = {name: options_of(name) for name in registry.DATASETS}
    yield from _options("dataset: {}", {name: found.type for name, found in datasets.items() if found})


def evaluation_keys() -> Iterator[str]:
    """Yield the keys of evaluation.json, KEY in place of systems, metrics and stages, and the names of metrics."""
    yield from _keys(Evaluation, "")
    yield from ("files", "checksum")
    with redirect_stdout(io.StringIO()) as out:
        app(["--json", "ls", "metrics"], standalone_mode=False)
    yield from (f"METRIC: {metric['name']}" for metric in json.loads(out.getvalue())["metrics"])


def cli_surface() -> Iterator[str]:
    """Yield each command with its arguments and options."""
    group = get_command(app)
    for name, command in {"": group, **group.commands}.items():  # type: ignore[attr-defined]
        yield " ".join(filter(None, ["recsys", name, *map(_param, command.params)]))


FROZEN: dict[str, Callable[[], Iterator[str]]] = {
    "cli_surface.txt": cli_surface,
    "python_names.txt": python_names,
    "config_keys.txt": config_keys,
    "evaluation_keys.txt": evaluation_keys,
}


def _options(place: str, kinds: dict[str, type[BaseModel]]) -> Iterator[str]:
    for name, kind in kinds.items():
        yield from (f"{place.format(name)}.{option['name']}" for option in options.explain(kind)["options"])


def _keys(annotation: Any, path: str) -> Iterator[str]:
    """Yield the paths of the keys inside a type; the config of an evaluation has a list of its own."""
    inner = get_args(annotation)
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        for name, field in annotation.model_fields.items():
            yield path + name
            if name != "config":
                yield from _keys(field.annotation, f"{path}{name}.")
    elif get_origin(annotation) is dict:
        yield from _keys(inner[1], f"{path}KEY.")
    else:
        for part in inner:
            yield from _keys(part, path)


def _is_field(kind: type[BaseModel], name: str) -> bool:
    return name in kind.model_fields or name.startswith("model_")


def _is_public(name: str, value: object) -> bool:
    return not name.startswith("_") and (callable(value) or isinstance(value, property | classmethod))


def _shown(name: str, value: object) -> str:
    called = value.__func__ if isinstance(value, classmethod) else value
    return name if isinstance(value, property) else f"{name}({', '.join(inspect.signature(called).parameters)})"


def _param(param: Any) -> str:
    if param.param_type_name == "argument":
        name = f"{param.metavar or param.name}{'...' * (param.nargs != 1)}"
        return name if param.required else f"[{name}]"
    return f"[{'/'.join([*param.opts, *param.secondary_opts])}{'' if param.is_flag else ' VALUE'}]"


def text(lines: Iterator[str]) -> str:
    """Return a list as text, one entry per line."""
    return "".join(f"{line}\n" for line in lines)


if __name__ == "__main__":
    for file, lines in FROZEN.items():
        (GOLDEN / file).write_text(text(lines()))
