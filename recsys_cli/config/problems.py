"""Messages of validation errors: location, key, reason and the closest valid key."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from recsys_cli import plugins
from recsys_cli.config.document import OF_OVERRIDE, Document, Key
from recsys_cli.registry import suggest

_TAGS = ("op", "method", "name")
"""Discriminator keys of unions."""
_MOST = 200
"""Maximum number of described problems."""
# Expected kinds of a value by pydantic's error type; `_joined` combines several at one key.
_MAPPING = "a mapping (keys with values)"
_KINDS = {
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    **dict.fromkeys(("tuple_type", "list_type"), "a list"),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), _MAPPING),
    **{"finite_number": "a finite number", "string_type": "text"},
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
    """Return one line per problem, with suggestions of valid keys by the type `root`; `prefix` is the key of the section."""
    sentences: dict[Key, list[str]] = {}
    advice: dict[Key, str] = {}
    values: Any = document.values
    for part in prefix:
        values = values[part]
    details = error.errors(include_url=False)
    lists = {detail["loc"][:-2] for detail in details if detail["loc"] and isinstance(detail["loc"][-1], int)}
    for detail in details[:_MOST]:
        if detail["type"] == "literal_error" and isinstance(detail["input"], list) and detail["loc"][:-1] in lists:
            continue  # a union of words and a list: the list is right, and its elements are reported themselves
        if detail["type"] == "too_short" and len(detail["input"]) >= detail["ctx"]["min_length"]:
            continue  # long enough in the document: pydantic counts only valid elements, and reports the others itself
        path = _clean(detail, document.values, prefix)
        known = _keys(_type_at(root, values, path[len(prefix) : -1]))
        sentences.setdefault(path, []).append(_sentence(detail, known, path))
        if _KINDS.get(detail["type"]) == _MAPPING and isinstance(detail["input"], str):
            advice[path] = _as_tag(detail["input"], _type_at(root, values, path[len(prefix) :]), path, document)
        elif str(detail["input"]).casefold() == "none" and _may_be_null(root, values, path[len(prefix) :]):
            advice[path] = "; write null"
    lines = [
        _line(document.location(path), path, _joined(reasons) + advice.get(path, ""))
        for path, reasons in sentences.items()
    ]
    return lines if len(details) <= _MOST else [*lines, f"and {len(details) - _MOST:,} more"]


def _as_tag(text: str, kind: Any, path: Key, document: Document) -> str:
    """Return advice for a text in place of a mapping: write it as the mapping's discriminator."""
    tag = next((tag for tag in _TAGS if tag in _keys(kind)), None)
    if tag is None:
        return ""
    if document.location(path).startswith(OF_OVERRIDE):
        return f"; write {'.'.join(map(str, path))}.{tag}={text}"
    return f"; write {'' if isinstance(path[-1], int) else f'{path[-1]}: '}{{{tag}: {text}}}"


def _may_be_null(root: type[BaseModel] | None, values: Any, path: Key) -> bool:
    parent = _type_at(root, values, path[:-1])
    if not (isinstance(parent, type) and issubclass(parent, BaseModel)) or path[-1] not in parent.model_fields:
        return False
    return types.NoneType in get_args(parent.model_fields[str(path[-1])].annotation)


def _line(location: str, path: Key, sentence: str) -> str:
    name = ".".join(map(str, path))
    return ": ".join(part for part in (location, name, sentence) if part)


def _clean(detail: ErrorDetails, values: Any, prefix: Key) -> Key:
    """Return pydantic's location as a key path of the document, without the names of union members."""
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
    if detail["type"] == "union_tag_invalid" and _leads_into(here, tag := _discriminator(detail["ctx"])):
        cleaned.append(tag)
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
            limit = context[bound]
            return f"has to be {words} {f'{limit:,}' if isinstance(limit, int) else f'{limit:g}'}, not {got}"
        case "missing":
            return "is missing"
        case "extra_forbidden":
            listing = f"; known: {', '.join(known)}" if known else ""
            return f"unknown key{suggest(str(path[-1]), known) or listing}"
        case "too_short":
            return f"needs at least {context['min_length']}, and has {context['actual_length']}"
        case "too_long":
            return f"allows at most {context['max_length']}, and has {len(detail['input'])}"
        case "union_tag_not_found" | "union_tag_invalid":
            return _wrong_tag(context)
        case "value_error":
            return str(context["error"])
        case _:
            return f"{detail['msg'][0].lower()}{detail['msg'][1:]}, not {got}"


def _wrong_tag(context: Mapping[str, Any]) -> str:
    key = _discriminator(context)
    if "tag" not in context:
        return f"needs `{key}: NAME`"
    tag, expected = str(context["tag"]), [one.strip(" '") for one in str(context["expected_tags"]).split(",")]
    near = suggest(tag, [*expected, *(plugins.declared("op").names if key == "op" else ())])
    return f"unknown {key} {tag!r}{near}; known: {', '.join(expected)}"


def _discriminator(context: Mapping[str, Any]) -> str:
    return str(context["discriminator"]).strip("'")


def _shown(value: Any) -> str:
    """Format a value like YAML, truncated to 60 characters."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _joined(sentences: list[str]) -> str:
    """Combine the messages of a union's members about one value."""
    first, *others = dict.fromkeys(sentences)
    start, end = "has to be ", first.rpartition(", not ")[2]
    if not others or not all(s.startswith(start) and s.endswith(f", not {end}") for s in (first, *others)):
        return "; ".join((first, *others))
    kinds = [s.removeprefix(start).removesuffix(f", not {end}") for s in (first, *others)]
    return f"{start}{' or '.join(kinds)}, not {end}"


def _type_at(root: type[BaseModel] | None, values: Any, path: Key) -> Any:
    """Return the type at a key path; None if unknown."""
    kind: Any = root
    for part in path:
        values = values[part] if _leads_into(values, part) else None
        if get_origin(kind) is dict:
            kind = get_args(kind)[1]
        elif isinstance(part, str) and isinstance(kind, type) and issubclass(kind, BaseModel):
            if part not in kind.model_fields:
                return None
            kind = kind.model_fields[part].annotation
        kind = _member(kind, values)
    return kind


def _keys(kind: Any) -> list[str]:
    """Return the valid keys of a mapping type; for a union, the keys common to all members."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return list(kind.model_fields)
    members = [_keys(member) for member in get_args(kind) if member is not types.NoneType] if _is_union(kind) else []
    return [key for key in members[0] if all(key in member for member in members)] if members else []


def _member(annotation: Any, values: Any) -> Any:
    """Return the element type of a tuple, or the member of a union selected by the document's discriminator."""
    origin = get_origin(annotation)
    if origin is tuple:
        return annotation if isinstance(values, list) else _member(get_args(annotation)[0], values)
    if hasattr(annotation, "__metadata__"):
        return _member(get_args(annotation)[0], values)
    if _is_union(annotation) and isinstance(values, dict):
        tags = [values.get(tag) for tag in _TAGS]
        models = [
            member for member in get_args(annotation) if isinstance(member, type) and issubclass(member, BaseModel)
        ]
        for member in models:
            if any(member.model_fields[t].default in tags for t in _TAGS if t in member.model_fields):
                return member
        plugin_type = None if any(tag is not None for tag in tags) else annotation
        return models[0] if len(models) == 1 else plugin_type
    return annotation


def _is_union(annotation: Any) -> bool:
    return get_origin(annotation) in {Union, types.UnionType}
