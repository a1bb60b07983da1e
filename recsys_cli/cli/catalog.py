"""The command `recsys ls`: names and keys for configs, with their descriptions."""

from __future__ import annotations

import inspect as python_inspect
import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recsys_cli import plugins, registry
from recsys_cli.cli import options, shipped
from recsys_cli.cli.completion import complete_listed
from recsys_cli.cli.quantities import size
from recsys_cli.cli.session import Session
from recsys_cli.cli.tables import facts, line, table
from recsys_cli.errors import ConfigError

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.console import Console


class ListedKind(StrEnum):
    """Lists of `recsys ls`."""

    DATASETS = "datasets"
    SPLITS = "splits"
    OPS = "ops"
    MODELS = "models"
    SCHEDULES = "schedules"
    ENGINES = "engines"
    METRICS = "metrics"
    SECTIONS = "sections"
    CONFIGS = "configs"
    PROTOCOLS = "protocols"


_OF_PACKAGES = {ListedKind.DATASETS, ListedKind.OPS, ListedKind.MODELS, ListedKind.ENGINES, ListedKind.METRICS}
_ELSEWHERE = {"split": ListedKind.SPLITS, "schedule": ListedKind.SCHEDULES, "ops": ListedKind.OPS}
"""Sections with several types, and their lists."""


def ls(
    ctx: typer.Context,
    kind: Annotated[
        ListedKind | None,
        typer.Argument(
            metavar="|".join(ListedKind), help="Kind of entries to list. Default: the kinds.", show_default=False
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="Entry to explain, with its options.",
            show_default=False,
            autocompletion=complete_listed,
        ),
    ] = None,
) -> None:
    """List models, metrics, ops, datasets and other names for configs.

    recsys ls ops Categorify explains the op and its options.
    """
    session: Session = ctx.obj
    if kind is None:
        session.answer({"kinds": [*ListedKind]}, lambda to, result: line(to, "\n".join(result["kinds"])))
        return
    rows = _LISTS[kind](session)
    if name is None:
        session.answer({kind.value: [*rows, *_declared(kind)]}, lambda to, result: _draw_list(to, kind, result))
        return
    if (entry := _entry(kind, name, rows)) is None:
        names = [row["name"] for row in [*rows, *_declared(kind)]]
        if kind is ListedKind.SECTIONS and (other := _ELSEWHERE.get(name.rpartition(".")[2])):
            raise ConfigError(f"section {name!r} has a list of its own", hint=f"recsys ls {other.value}")
        raise ConfigError(
            f"no {kind.value[:-1]} {name!r}{registry.suggest(name, names)}", hint=f"known: {', '.join(names)}"
        )
    draw = _draw_protocol if kind is ListedKind.PROTOCOLS else _draw_one
    session.answer({**entry, **_DETAILS.get(kind, lambda _: {})(name)}, draw)


def _entry(kind: ListedKind, name: str, rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the row of a name, also of `ndcg@k` by `ndcg` or `ndcg@10`, or of a component of another package."""
    names = {name, re.sub(r"(@[1-9][0-9]*)?$", "@k", name, count=1)}
    if entry := next((row for row in rows if row["name"] in names), None):
        return entry
    if kind not in _OF_PACKAGES or (path := plugins.resolve(name, what=kind.value[:-1])) is None:
        return None
    return next((row for row in _declared(kind) if row["name"] == name), {"name": name, "path": path})


def _declared(kind: ListedKind) -> list[dict[str, Any]]:
    """Return the entry points of installed packages."""
    return [
        {"name": entry.name, "package": entry.dist.name if entry.dist else "", "path": entry.value}
        for entry in (plugins.declared(kind.value[:-1]) if kind in _OF_PACKAGES else ())
    ]


def _datasets(session: Session) -> list[dict[str, Any]]:
    from recsys_cli.data import catalog

    return [
        {
            "name": info.name, "rows": info.rows, "bytes": info.size, "licence": info.licence, "access": info.access,
            "here": session.workspace.raw(info.name).exists, "homepage": info.homepage, "notice": info.notice,
        }
        for info in catalog()
    ]  # fmt: skip


def _of_types(types: Callable[[], Mapping[str, type[BaseModel]]]) -> Callable[[Session], list[dict[str, Any]]]:
    """Return a function that lists types by name."""
    return lambda _: [{"name": name, "summary": options.summary(kind)} for name, kind in types().items()]


def _models(session: Session) -> list[dict[str, Any]]:  # noqa: ARG001 - the same in every workspace
    uses = {name: (model.task, model.use) for name, model in registry.MODELS.items()}
    return [
        {"name": name, "summary": options.summary(_model_type(name)), "task": task, "when": when}
        for name, (task, when) in {registry.AUTO: (registry.RANK, registry.AUTO_ADVICE), **uses}.items()
    ]


def _engines(session: Session) -> list[dict[str, Any]]:  # noqa: ARG001 - the same in every workspace
    from recsys_cli.cli.doctor import engines

    return engines()


def _metrics(session: Session) -> list[dict[str, Any]]:  # noqa: ARG001 - the same in every workspace
    from recsys_cli.metrics import BEYOND, GROUPED, IMPRESSION, OPTIONAL, POINTWISE, RANKING, Metric
    from recsys_cli.metrics.named import impression_names

    named: dict[str, Metric] = {**POINTWISE, **GROUPED}
    named |= {name: metric for metric in IMPRESSION.values() for name in impression_names(metric)}
    named |= {f"{name}@k": metric for name, metric in {**RANKING, **OPTIONAL}.items()}
    named |= {f"{name}@k": metric for name, metric in BEYOND.items()}
    return [{"name": name, **_definition(metric.title, metric.compute)} for name, metric in named.items()]


def _definition(title: str, compute: Callable[..., Any]) -> dict[str, str]:
    """Return the value of a metric in words, and its source; the title of a metric without a docstring."""
    text = re.sub(r"; (shape|each) \([^)]*\)", "", python_inspect.getdoc(compute) or title)
    value, _, source = re.sub("^Return (the )?", "", text).partition("\n")
    return {"summary": value[:1].upper() + value[1:], "meaning": options.unwrapped(source)}


def _op_details(name: str) -> dict[str, Any]:
    from recsys_cli.ops.foreign import foreign_op

    kind = options.ops().get(name) or foreign_op(name)
    assert kind is not None
    return {"summary": options.summary(kind), **options.explain(kind, leave_out="op")}


def _protocols(session: Session) -> list[dict[str, Any]]:
    from recsys_cli.config import load
    from recsys_cli.protocols import path_of

    rows = []
    for name in registry.PROTOCOLS:
        path = path_of(name)
        config = load(path)
        assert config.bench is not None
        assert config.protocol is not None
        rows.append({
            "name": name,
            "evaluation": _first_comment(path),
            "dataset": config.dataset.name,
            "here": session.workspace.raw(config.dataset.name).exists,
            "models": list(config.bench.labels),
            "metrics": list(config.bench.metrics),
            "config": str(path),
            **config.protocol.model_dump(mode="json"),
        })  # fmt: skip
    return rows


_LISTS: dict[ListedKind, Callable[[Session], list[dict[str, Any]]]] = {
    ListedKind.DATASETS: _datasets,
    ListedKind.SPLITS: _of_types(options.splits),
    ListedKind.OPS: _of_types(options.ops),
    ListedKind.MODELS: _models,
    ListedKind.SCHEDULES: _of_types(options.schedules),
    ListedKind.ENGINES: _engines,
    ListedKind.METRICS: _metrics,
    ListedKind.SECTIONS: _of_types(options.sections),
    ListedKind.CONFIGS: lambda _: [{"name": str(path), "summary": _first_comment(path)} for path in shipped.configs()],
    ListedKind.PROTOCOLS: _protocols,
}


def _first_comment(path: Path) -> str:
    with path.open(encoding="utf-8") as lines:
        return next((line.lstrip("# ").rstrip() for line in lines if line.startswith("#")), "")


def _model_type(name: str) -> type[BaseModel]:
    from recsys_cli.config.load import model_config_type

    return model_config_type(name)


def _model_details(name: str) -> dict[str, Any]:
    from recsys_cli.config.load import train_defaults

    kind = _model_type(name)
    return {"summary": options.summary(kind), **options.explain(kind), "train": dict(train_defaults(kind))}


def _dataset_details(name: str) -> dict[str, Any]:
    from recsys_cli.data import options_of

    own = options_of(name)
    return {} if own is None else options.explain(own.type, preset=own.preset)


_DETAILS: dict[ListedKind, Callable[[str], dict[str, Any]]] = {
    ListedKind.DATASETS: _dataset_details,
    ListedKind.SPLITS: lambda name: options.explain(options.splits()[name], leave_out="method"),
    ListedKind.OPS: _op_details,
    ListedKind.MODELS: _model_details,
    ListedKind.SCHEDULES: lambda name: options.explain(options.schedules()[name], leave_out="name"),
    ListedKind.METRICS: lambda _: {"options": []},
    ListedKind.SECTIONS: lambda name: options.explain(options.sections()[name]),
}


def _draw_list(to: Console, kind: ListedKind, result: Mapping[str, Any]) -> None:
    rows = [row for row in result[kind.value] if "package" not in row]
    if kind is ListedKind.DATASETS:
        cells = [
            (
                row["name"], row["licence"], row["access"], "yes" if row["here"] else "",
                f"{row['rows']:,}" if row["rows"] else "", size(row["bytes"]) if row["bytes"] else "",
            )
            for row in rows
        ]  # fmt: skip
        table(to, "", ("dataset", "license", "access", "downloaded", "rows", "size"), cells, text=4)
        line(to, "recsys download NAME downloads one; recsys ls datasets NAME lists its options")
        line(to, "login, moved: recsys download NAME names the files to fetch by hand, for --from-file")
        line(to, "recsys init writes a config for your own table")
    elif kind is ListedKind.PROTOCOLS:
        protocols = [(row["name"], row["evaluation"], row["dataset"], "yes" if row["here"] else "") for row in rows]
        table(to, "", ("protocol", "evaluation", "dataset", "downloaded"), protocols, text=4)
        line(to, "recsys bench --protocol NAME repeats one; --from-file PATH takes its files instead of a download")
        line(to, "recsys ls protocols NAME lists the published figures and their sources")
    elif kind is ListedKind.ENGINES:
        engines = [(row["name"], row["summary"], "yes" if row["available"] else str(row["install"])) for row in rows]
        table(to, "", ("engine", "description", "available"), engines, text=3)
    elif kind is ListedKind.MODELS:
        for task in dict.fromkeys(row["task"] for row in rows):
            models = [(row["name"], row["when"]) for row in rows if row["task"] == task]
            table(to, f"to {task}, best first", ("model", "use for"), models, text=2)
        line(to, "order: results on MovieLens latest-small; recsys bench ranks the models on your data")
        line(to, "recsys ls models NAME explains a model and its options")
    elif rows:
        table(to, "", (kind.value[:-1], "description"), [(row["name"], row["summary"]) for row in rows], text=2)
        if kind in _DETAILS:
            line(to, f"recsys ls {kind.value} NAME explains an entry and its options")
    else:
        line(to, "none in ./configs; recsys init writes one for your own table")
    if others := [(row["name"], row["package"], row["path"]) for row in result[kind.value] if "package" in row]:
        table(to, "of other packages", (kind.value[:-1], "package", "import path"), others, text=3)


def _draw_one(to: Console, result: Mapping[str, Any]) -> None:
    line(to, result["name"], style="bold")
    if "summary" not in result or "options" not in result:
        facts(
            to, [(name, _shown(value)) for name, value in result.items() if name not in {"name", "meaning", "options"}]
        )
    if "options" not in result:
        return
    if "summary" in result:
        line(to, result["summary"])
    if "when" in result:
        line(to, f"To {result['task']}: {result['when']}.")
    for text in result.get("meaning", "").splitlines():
        line(to, "")
        line(to, text)
    if result["options"]:
        line(to, "\nOptions", style="bold")
    for option in result["options"]:
        default = "required" if option["required"] else f"default {_shown(option['default'])}"
        line(to, f"{option['name']}: {option['type']}, {default}", style="bold", indent=2)
        line(to, option["meaning"], indent=6)
    if result.get("train"):
        line(to, "\nDefaults of the train section", style="bold")
    for name, value in result.get("train", {}).items():
        line(to, f"train.{name}: {_shown(value)}", indent=2)


def _draw_protocol(to: Console, result: Mapping[str, Any]) -> None:
    from recsys_cli.metrics.named import title_of

    line(to, result["name"], style="bold")
    line(to, result["evaluation"])
    facts(to, [(name, _shown(result[name])) for name in ("paper", "dataset", "rows", "models", "config")])
    metrics = result["metrics"]
    cells = [
        (one["model"], one["source"], *(f"{figure:.4f}" if figure is not None else "–" for figure in figures))
        for one in result["published"]
        if (figures := [one["figures"].get(name) for name in metrics])
    ]
    table(to, "", ("published", "source", *map(title_of, metrics)), cells, text=2)
    for text in result["notes"]:
        line(to, text)
    line(to, f"recsys bench --protocol {result['name']}")


def _shown(value: Any) -> str:
    match value:
        case None:
            return "null"
        case "":
            return '""'
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case dict() if not value:
            return "{}"
        case dict():
            return f"{{{', '.join(f'{key}: {_shown(inner)}' for key, inner in value.items())}}}"
        case list() | tuple():
            return f"[{', '.join(map(_shown, value))}]"
    return str(value)
