"""Documentation of config components from their types and docstrings."""

from __future__ import annotations

import ast
import inspect as python_inspect
import re
import textwrap
import types
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

if TYPE_CHECKING:
    from pydantic import BaseModel


def ops() -> dict[str, type[BaseModel]]:
    """Return the ops by name."""
    from recsys_cli.ops import OPS

    return dict(OPS)


def splits() -> dict[str, type[BaseModel]]:
    """Return the splits by `split.method`."""
    from recsys_cli.features import split

    return dict(split.splits())


def schedules() -> dict[str, type[BaseModel]]:
    """Return the learning rate schedules by name."""
    from recsys_cli.config.schedule import Schedule

    return {kind.model_fields["name"].default: kind for kind in _members(Schedule)}


def sections() -> dict[str, type[BaseModel]]:
    """Return the config sections of a single type; splits and ops have lists of their own."""
    from recsys_cli.config import RunConfig

    types_of = {name: _members(field.annotation) for name, field in RunConfig.model_fields.items()}
    return {name: kinds[0] for name, kinds in types_of.items() if len(kinds) == 1}


def summary(component: type[BaseModel]) -> str:
    """Return the first line of a component's docstring."""
    return (python_inspect.getdoc(component) or "").partition("\n")[0]


def explain(
    component: type[BaseModel], *, leave_out: str = "", preset: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the description and the options of a component, without the discriminator `leave_out`.

    `meaning` is the docstring after its first line, and `options` have name, type, default (`preset` first), required
    and meaning. Keys of a nested mapping follow their option, by path.
    """
    _, _, meaning = (python_inspect.getdoc(component) or "").partition("\n")
    return {"meaning": unwrapped(meaning), "options": list(_options(component, preset or {}, leave_out=leave_out))}


def _options(
    component: type[BaseModel], preset: Mapping[str, Any], *, leave_out: str = "", path: str = ""
) -> Iterator[dict[str, Any]]:
    docs = field_docs(component)
    for name, field in component.model_fields.items():
        if name == leave_out:
            continue
        required = field.is_required() and name not in preset
        default = None if required else preset.get(name, field.get_default(call_default_factory=True))
        yield {
            "name": path + name,
            "type": type_name(field.annotation),
            "default": _plain(default),
            "required": required,
            "meaning": re.sub(r"\bNone\b(?! of\b)", "null", unwrapped(docs.get(name, ""))),  # as in YAML
        }
        for step, kind in _inside(field.annotation).items():
            yield from _options(kind, {}, path=f"{path}{name}{step}.")


def _plain(value: Any) -> Any:
    from pydantic import BaseModel

    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else value


def _inside(annotation: Any, step: str = "") -> dict[str, type[BaseModel]]:
    """Return the types of nested mappings by key path; none of a union of several."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated or origin in {Union, types.UnionType}:
        members = _members(annotation)
        return {step: members[0]} if len(members) == 1 else {}
    if origin in {tuple, list}:
        return _inside(inner[0], f"{step}.0")
    if origin is dict:
        return _inside(inner[1], f"{step}.KEY")
    return {step: annotation} if _is_model(annotation) else {}


def _members(annotation: Any) -> list[type[BaseModel]]:
    """Return the mapping types of a type or union."""
    if _is_model(annotation):
        return [annotation]
    inner = get_args(annotation)
    if get_origin(annotation) is Annotated:
        inner = inner[:1]
    elif get_origin(annotation) not in {Union, types.UnionType}:
        return []
    return [member for part in inner for member in _members(part)]


def _is_model(annotation: Any) -> bool:
    from pydantic import BaseModel

    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def unwrapped(text: str) -> str:
    """Remove the line breaks of the source, except between paragraphs and before "Output: …"."""
    paragraphs = re.split(r"\n\s*\n|(?<=\.)\n(?=[A-Z][^:\n]{2,40}: )", text.strip())
    return "\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def type_name(annotation: Any) -> str:
    """Return the readable name of a type: `list of int`, `int or null`, `mapping`."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return type_name(inner[0])
    if origin is Literal:
        return " | ".join(map(str, inner))
    if origin in {Union, types.UnionType}:
        return " or ".join(dict.fromkeys(map(type_name, inner)))
    if origin in {tuple, list}:
        return f"list of {type_name(inner[0])}"
    if origin is dict:
        return f"mapping of {type_name(inner[0])} to {type_name(inner[1])}"
    if _is_model(annotation):
        return "mapping"
    return {str: "text", types.NoneType: "null", Any: "any"}.get(annotation) or str(
        getattr(annotation, "__name__", annotation)
    )


def field_docs(kind: type[BaseModel]) -> dict[str, str]:
    """Return the field docstrings of a class and its bases, by field.

    They are read from the source: `use_attribute_docstrings` of Pydantic reads it at import, which costs every command 0.15 s.
    """
    from pydantic import BaseModel

    docs: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if issubclass(base, BaseModel) and base is not BaseModel:
            docs |= _own_docs(base)
    return docs


def _own_docs(kind: type[BaseModel]) -> dict[str, str]:
    try:
        source = python_inspect.getsource(kind)
    except (OSError, TypeError):  # a class created at run time
        return {}
    (definition,) = ast.parse(textwrap.dedent(source)).body
    assert isinstance(definition, ast.ClassDef)
    return {
        field.target.id: python_inspect.cleandoc(text.value.value)
        for field, text in pairwise(definition.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }
