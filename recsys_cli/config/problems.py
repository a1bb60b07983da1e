"""Validation errors in our words: where, which key, what is wrong, and the nearest key that exists."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from recsys_cli.config.document import Document, Key
from recsys_cli.registry import suggest

_TAGS = ("op", "method", "name")
# What a value has to be, by the kind of pydantic's error; several of them at one key are joined by "or".
_KINDS = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping (keys with values)",
    "model_type": "a mapping (keys with values)",
    "model_attributes_type": "a mapping (keys with values)",
}
_BOUNDS = {
    "greater_than": ("gt", "more than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}


def describe(
    error: ValidationError, root: type[BaseModel] | None, document: Document, *, prefix: Key = ()
) -> list[str]:
    """Return one line per problem.

    Args:
        error: What pydantic found.
        root: The type that was validated, to know the keys that exist; None where it is not at hand.
        document: Where the keys were written.
        prefix: Key of the section that was validated, where it was not the whole config.
    """
    sentences: dict[Key, list[str]] = {}
    values: Any = document.values
    for part in prefix:
        values = values[part]
    for detail in error.errors(include_url=False):
        if detail["type"] == "too_short" and len(detail["input"]) >= detail["ctx"]["min_length"]:
            continue  # long enough as written: pydantic counts what it did not refuse, and the refusals are here, too
        path = _clean(detail, document.values, prefix)
        known = _known_keys(root, values, path[len(prefix) : -1]) if root else []
        sentences.setdefault(path, []).append(_sentence(detail, known, path))
    return [_line(document.place(path), path, _joined(found)) for path, found in sentences.items()]


def _line(where: str, path: Key, sentence: str) -> str:
    name = ".".join(map(str, path))
    return ": ".join(part for part in (where, name, sentence) if part)


def _clean(detail: ErrorDetails, values: Any, prefix: Key) -> Key:
    """Drop from a pydantic location the names of union members, which are no keys of the document."""
    cleaned: list[str | int] = list(prefix)
    here: Any = values
    for part in prefix:
        here = here.get(part) if isinstance(here, dict) else None
    loc = detail["loc"]
    for position, part in enumerate(loc):
        is_last = position == len(loc) - 1
        if _leads_into(here, part):
            here = here[part]
        elif is_last and detail["type"] == "missing":
            here = None
        else:
            continue
        cleaned.append(part)
    return tuple(cleaned)


def _leads_into(here: Any, part: Any) -> bool:
    return part in here if isinstance(here, dict) else isinstance(here, list) and part in range(len(here))


def _sentence(detail: ErrorDetails, known: list[str], path: Key) -> str:  # noqa: PLR0911 - a table of sentences
    context: Mapping[str, Any] = detail.get("ctx") or {}
    got = _shown(detail["input"])
    match detail["type"]:
        case kind if kind in _KINDS:
            return f"has to be {_KINDS[kind]}, not {got}"
        case "literal_error":
            return f"has to be {context['expected']}, not {got}"
        case kind if kind in _BOUNDS:
            bound, words = _BOUNDS[kind]
            return f"has to be {words} {context[bound]:g}, not {got}"
        case "missing":
            return "is missing"
        case "extra_forbidden":
            return f"unknown key{suggest(str(path[-1]), known) or _listing(known)}"
        case "too_short":
            return f"needs {context['min_length']} or more, and has {context['actual_length']}"
        case "union_tag_not_found" | "union_tag_invalid":
            return _wrong_tag(context)
        case "value_error":
            return str(context["error"])
        case _:
            return f"{detail['msg'][0].lower()}{detail['msg'][1:]}, not {got}"


def _listing(known: list[str]) -> str:
    return f"; known: {', '.join(known)}" if known else ""


def _wrong_tag(context: Mapping[str, Any]) -> str:
    what = str(context["discriminator"]).strip("'")
    if "tag" not in context:
        return f"needs `{what}: NAME`, to say which one it is"
    expected = [tag.strip(" '") for tag in str(context["expected_tags"]).split(",")]
    tag = str(context["tag"])
    return f"unknown {what} {tag!r}{suggest(tag, expected)}; known: {', '.join(expected)}"


def _shown(value: Any) -> str:
    """Write a value as YAML would, and not all of a long one."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _joined(sentences: list[str]) -> str:
    """Join what the members of a union say about one value."""
    first, *others = dict.fromkeys(sentences)
    start, end = "has to be ", first.rpartition(", not ")[2]
    if not others or not all(s.startswith(start) and s.endswith(f", not {end}") for s in (first, *others)):
        return "; ".join((first, *others))
    kinds = [s.removeprefix(start).removesuffix(f", not {end}") for s in (first, *others)]
    return f"{start}{' or '.join(kinds)}, not {end}"


def _known_keys(root: type[BaseModel], values: Any, path: Key) -> list[str]:
    """Walk the types along a key path and return the keys that the type at its end has."""
    found: Any = root
    for part in path:
        values = values[part] if _leads_into(values, part) else None
        if get_origin(found) is dict:
            found = get_args(found)[1]
        elif isinstance(part, str) and isinstance(found, type) and issubclass(found, BaseModel):
            if part not in found.model_fields:
                return []
            found = found.model_fields[part].annotation
        found = _member(found, values)
    if isinstance(found, type) and issubclass(found, BaseModel):
        return list(found.model_fields)
    return []


def _member(annotation: Any, values: Any) -> Any:
    """Return the type inside a tuple, or the union's member that the document's tag names."""
    origin = get_origin(annotation)
    if origin is tuple:
        return annotation if isinstance(values, list) else _member(get_args(annotation)[0], values)
    if hasattr(annotation, "__metadata__"):
        return _member(get_args(annotation)[0], values)
    if origin in {Union, types.UnionType} and isinstance(values, dict):
        tags = {values.get(tag) for tag in _TAGS}
        models = [
            member for member in get_args(annotation) if isinstance(member, type) and issubclass(member, BaseModel)
        ]
        for member in models:
            if any(member.model_fields[t].default in tags for t in _TAGS if t in member.model_fields):
                return member
        return models[0] if len(models) == 1 else annotation
    return annotation
