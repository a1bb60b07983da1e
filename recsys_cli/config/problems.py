"""Validation errors in our words: where, which key, what is wrong, and the nearest key that exists."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from recsys_cli.config.document import Document, Key
from recsys_cli.registry import suggest

_TAGS = ("op", "method")


def describe(
    error: ValidationError, root: type[BaseModel] | None, document: Document, *, prefix: Key = ()
) -> list[str]:
    """Return one line per problem.

    Args:
        error: What pydantic found.
        root: The type that was validated, to know the keys that exist; None for a component, whose title is enough.
        document: Where the keys were written.
        prefix: Key of the section that was validated, where it was not the whole config.
    """
    lines = []
    for detail in error.errors(include_url=False):
        path = _clean(detail["loc"], document.values, prefix)
        where = document.place(path)
        name = ".".join(map(str, path)) or "config"
        lines.append(f"  {where + ': ' if where else ''}{name}: {_sentence(detail, root, document.values, path)}")
    return list(dict.fromkeys(lines))


def _clean(loc: tuple[int | str, ...], values: Any, prefix: Key) -> Key:
    """Drop from a pydantic location the names of union members, which are no keys of the document."""
    cleaned: list[str | int] = list(prefix)
    here: Any = values
    for part in prefix:
        here = here.get(part, {}) if isinstance(here, dict) else {}
    for position, part in enumerate(loc):
        is_tag = isinstance(here, dict) and part not in here and part in {here.get(tag) for tag in _TAGS}
        if is_tag and position < len(loc) - 1:
            continue
        cleaned.append(part)
        if isinstance(here, dict):
            here = here.get(part)
        elif isinstance(here, list) and isinstance(part, int) and part < len(here):
            here = here[int(part)]
        else:
            here = None
    return tuple(cleaned)


def _sentence(detail: ErrorDetails, root: type[BaseModel] | None, values: Any, path: Key) -> str:
    context: Mapping[str, Any] = detail.get("ctx") or {}
    match detail["type"]:
        case "extra_forbidden":
            known = _known_keys(root, values, path[:-1]) if root else []
            listing = f"; known: {', '.join(known)}" if known else ""
            return f"unknown key{suggest(str(path[-1]), known)}{listing}"
        case "missing":
            return "is missing"
        case "union_tag_not_found":
            return f"needs {context['discriminator']}, to say which one it is"
        case "union_tag_invalid":
            expected = [tag.strip(" '") for tag in str(context["expected_tags"]).split(",")]
            tag = str(context["tag"])
            return f"unknown {context['discriminator']} {tag!r}{suggest(tag, expected)}; known: {', '.join(expected)}"
        case "literal_error":
            return f"has to be {context['expected']}, not {detail['input']!r}"
        case "value_error":
            return str(context["error"])
    return f"{detail['msg'][0].lower()}{detail['msg'][1:]}, not {detail['input']!r}"


def _known_keys(root: type[BaseModel], values: Any, path: Key) -> list[str]:
    """Walk the types along a key path and return the keys that the type at its end has."""
    found: Any = root
    for part in path:
        values = values[part] if isinstance(values, (dict, list)) else None
        if isinstance(part, str) and isinstance(found, type) and issubclass(found, BaseModel):
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
        for member in get_args(annotation):
            is_model = isinstance(member, type) and issubclass(member, BaseModel)
            if is_model and any(member.model_fields[t].default in tags for t in _TAGS if t in member.model_fields):
                return member
    return annotation
