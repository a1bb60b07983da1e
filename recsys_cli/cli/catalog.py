"""`recsys ls`: what a config may name — datasets, ops, models, engines, metrics — and what each of them means."""

from __future__ import annotations

import inspect as python_inspect
import re
import types
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import typer

from recsys_cli import registry
from recsys_cli.cli import shipped
from recsys_cli.cli.session import Session
from recsys_cli.errors import ConfigError

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.console import Console


class Kind(StrEnum):
    """What can be listed."""

    DATASETS = "datasets"
    OPS = "ops"
    MODELS = "models"
    ENGINES = "engines"
    METRICS = "metrics"
    CONFIGS = "configs"


def ls(
    ctx: typer.Context,
    kind: Annotated[
        Kind,
        typer.Argument(metavar="datasets|ops|models|engines|metrics|configs", help="What to list.", show_default=False),
    ],
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="One of them, to read what it means and which options it has.", show_default=False
        ),
    ] = None,
) -> None:
    """List what a config may name, or explain one.

    recsys ls ops Categorify tells what the op does and which options it has.
    """
    session: Session = ctx.obj
    rows = _LISTS[kind](session)
    if name is None:
        session.answer({kind.value: rows}, lambda to, result: _draw_list(to, kind, result))
        return
    found = next((row for row in rows if row["name"] == name), None)
    if found is None:
        names = [row["name"] for row in rows]
        raise ConfigError(
            f"no {kind.value[:-1]} {name!r}{registry.suggest(name, names)}", hint=f"known: {', '.join(names)}"
        )
    session.answer({**found, **_DETAILS.get(kind, lambda _: {})(name)}, _draw_one)


def _datasets(session: Session) -> list[dict[str, Any]]:
    from recsys_cli.data import catalog

    return [
        {
            "name": info.name,
            "rows": info.rows,
            "bytes": info.size,
            "licence": info.licence,
            "here": session.workspace.raw(info.name).exists,
            "homepage": info.homepage,
            "notice": info.notice,
        }
        for info in catalog()
    ]


def _ops(session: Session) -> list[dict[str, Any]]:  # noqa: ARG001 - the same in every workspace
    return [{"name": name, "summary": _summary(op)} for name, op in _op_types().items()]


def _models(session: Session) -> list[dict[str, Any]]:  # noqa: ARG001 - the same in every workspace
    return [{"name": name, "summary": _summary(_model_type(name))} for name in registry.MODELS]


def _engines(session: Session) -> list[dict[str, Any]]:  # noqa: ARG001 - the same in every workspace
    from recsys_cli.cli.doctor import engines

    return engines()


def _metrics(session: Session) -> list[dict[str, Any]]:  # noqa: ARG001 - the same in every workspace
    from recsys_cli.evaluation.metrics import BEYOND, GROUPED, POINTWISE, RANKING

    named: dict[str, object] = {name: metric.compute for name, metric in POINTWISE.items()}
    named |= {name: metric.compute for name, metric in GROUPED.items()}
    named |= {f"{name}@k": metric.compute for name, metric in RANKING.items()}
    named |= {f"{name}@k": metric.compute for name, metric in BEYOND.items()}
    return [
        {"name": name, "summary": str(getattr(python_inspect.getmodule(compute), "__doc__", "")).splitlines()[0]}
        for name, compute in named.items()
    ]


def _configs(session: Session) -> list[dict[str, Any]]:  # noqa: ARG001 - the same in every workspace
    return [{"name": str(path), "summary": _first_comment(path)} for path in shipped.configs()]


_LISTS = {
    Kind.DATASETS: _datasets,
    Kind.OPS: _ops,
    Kind.MODELS: _models,
    Kind.ENGINES: _engines,
    Kind.METRICS: _metrics,
    Kind.CONFIGS: _configs,
}


def _first_comment(path: Path) -> str:
    with path.open(encoding="utf-8") as lines:
        return next((line.lstrip("# ").rstrip() for line in lines if line.startswith("#")), "")


def _op_types() -> dict[str, type[BaseModel]]:
    from recsys_cli.features.ops import AnyOp

    union, *_ = get_args(AnyOp)
    return {op.__name__: op for op in get_args(union)}


def _model_type(name: str) -> type[BaseModel]:
    from recsys_cli.config.load import model_config_type

    return model_config_type(name)


def _op_details(name: str) -> dict[str, Any]:
    return _explain(_op_types()[name], leave_out="op")


def _model_details(name: str) -> dict[str, Any]:
    from recsys_cli.config.load import train_defaults

    kind = _model_type(name)
    return _explain(kind) | {"train": dict(train_defaults(kind))}


_DETAILS = {Kind.OPS: _op_details, Kind.MODELS: _model_details}


def _summary(component: type[BaseModel]) -> str:
    return (python_inspect.getdoc(component) or "").partition("\n")[0]


def _explain(component: type[BaseModel], *, leave_out: str = "") -> dict[str, Any]:
    """Read a component's meaning and options from its docstring and its fields."""
    _, _, meaning = (python_inspect.getdoc(component) or "").partition("\n")
    options = [
        {
            "name": name,
            "type": _type_name(field.annotation),
            "default": None if field.is_required() else field.default,
            "required": field.is_required(),
            "meaning": _unwrapped(field.description or ""),
        }
        for name, field in component.model_fields.items()
        if name != leave_out
    ]
    return {"meaning": _unwrapped(meaning), "options": options}


def _unwrapped(text: str) -> str:
    """Take out the line ends of the source, for a terminal has its own: only paragraphs, and lines like "Output: …", begin anew."""
    paragraphs = re.split(r"\n\s*\n|(?<=\.)\n(?=[A-Z][^:\n]{2,40}: )", text.strip())
    return "\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _type_name(annotation: Any) -> str:
    """Write a type as one would say it: `list of int`, `int or none`."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type_name(inner[0])
    if origin is Literal:
        return " | ".join(map(str, inner))
    if origin in {Union, types.UnionType}:
        return " or ".join(map(_type_name, inner))
    if origin in {tuple, list}:
        return f"list of {_type_name(inner[0])}"
    if origin is dict:
        return f"mapping of {_type_name(inner[0])} to {_type_name(inner[1])}"
    return {str: "text", types.NoneType: "none"}.get(annotation) or str(getattr(annotation, "__name__", annotation))


def _draw_list(to: Console, kind: Kind, result: Mapping[str, Any]) -> None:
    from recsys_cli.cli.quantities import size
    from recsys_cli.cli.tables import line, table

    rows = result[kind.value]
    if kind is Kind.DATASETS:
        cells = [
            (
                row["name"],
                row["licence"],
                "here" if row["here"] else "",
                f"{row['rows']:,}" if row["rows"] else "",
                size(row["bytes"]) if row["bytes"] else "",
            )
            for row in rows
        ]
        table(to, "", ("dataset", "licence", "here?", "rows", "size"), cells, text=3)
        line(to, "recsys download NAME gets one; recsys init makes a config for a table of your own")
    elif kind is Kind.ENGINES:
        engines = [(row["name"], row["summary"], "yes" if row["available"] else str(row["install"])) for row in rows]
        table(to, "", ("engine", "what it is", "runs here?"), engines, text=3)
    elif rows:
        table(to, "", (kind.value[:-1], "what it is"), [(row["name"], row["summary"]) for row in rows], text=2)
        if kind in _DETAILS:
            line(to, f"recsys ls {kind.value} NAME tells its meaning and options")
    else:
        line(to, "none in ./configs; recsys init writes one for a table of your own")


def _draw_one(to: Console, result: Mapping[str, Any]) -> None:
    from recsys_cli.cli.tables import facts, line

    line(to, result["name"], style="bold")
    if "options" not in result:
        facts(to, [(name, _shown(value)) for name, value in result.items() if name != "name"])
        return
    line(to, result["summary"])
    for text in result["meaning"].splitlines():
        line(to, "")
        line(to, text)
    if result["options"]:
        line(to, "\nOptions", style="bold")
    for option in result["options"]:
        default = "needed" if option["required"] else f"default {_shown(option['default'])}"
        line(to, f"{option['name']}: {option['type']}, {default}", style="bold", indent=2)
        line(to, option["meaning"], indent=6)
    if result.get("train"):
        line(to, "\nHow it is trained where the config does not say", style="bold")
    for name, value in result.get("train", {}).items():
        line(to, f"train.{name}: {_shown(value)}", indent=2)


def _shown(value: Any) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case list() | tuple() | dict() if not value:
            return "none"
        case list() | tuple():
            return f"[{', '.join(map(_shown, value))}]"
    return str(value)
