"""A YAML file as plain values with the line of every key, and overrides of the form section.key=value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from yaml.reader import ReaderError

from recsys_cli.config import yaml12
from recsys_cli.errors import ConfigError
from recsys_cli.features.split import splits
from recsys_cli.registry import DEFAULT_MODEL, suggest

Key = tuple[str | int, ...]
OF_OVERRIDE = "override "
"""Prefix of the location of a value set on the command line."""
_BY_NAME: frozenset[Key] = frozenset({("train", "schedule")})
"""Keys with NAME as a short form of {name: NAME}; overrides may set keys of that mapping."""
_MODEL_NAME: Key = ("model", "name")
_SPLIT_METHOD: Key = ("split", "method")
_NAMED_BY = {"dataset": "name", "split": "method", "model": "name"}
"""Sections often written as a single word, with the key of that word."""
_OF_EVERY_MODEL = frozenset({"embedding"})
"""Keys of the model section shared by all models; an override of the model's name drops all others."""


@dataclass
class Document:
    """Plain values and their source locations.

    Attributes:
        values: Mappings, lists and scalars.
        locations: "file:line" or override, by key path.
    """

    values: dict[str, Any]
    locations: dict[Key, str] = field(default_factory=dict)

    def location(self, key: Key) -> str:
        """Return the source location of a key or of its nearest parent; of a section with overrides, these."""
        own = [text for at, text in self.locations.items() if at[: len(key)] == key and text.startswith(OF_OVERRIDE)]
        if own and key in self.locations:
            return OF_OVERRIDE + ", ".join(text.removeprefix(OF_OVERRIDE) for text in own)
        while key and key not in self.locations:
            key = key[:-1]
        return self.locations.get(key, "")


Check = Callable[[Document], list[str]]
"""Function that returns the problems of a document."""


def read(path: Path) -> Document:
    """Read a YAML file.

    Raises:
        ConfigError: The file is missing, is not YAML, or has a duplicate key; with file and line.
    """
    text = _text(path)
    try:
        root = yaml12.compose(text)
        locations: dict[Key, str] = {}
        duplicates: list[str] = []
        if isinstance(root, yaml.MappingNode):
            _collect_locations(root, (), str(path), locations, duplicates)
        values = yaml12.construct(root)
    except yaml.YAMLError as error:
        raise ConfigError(f"{_location(path, text, error)}: not YAML: {_reason(error)}") from error
    if not isinstance(values, dict):
        problem = "is empty" if values is None else "is not a mapping"
        raise ConfigError(
            f"{path}: {problem}; a config has sections such as dataset and features",
            hint="`recsys init` writes a config for your own table; `recsys ls configs` lists the included ones",
        )
    if duplicates:
        raise ConfigError("\n".join(duplicates))
    return Document(values, locations)


def override(document: Document, overrides: Sequence[str], *, location: str | None = None) -> None:
    """Apply overrides `section.key=value` to a document, in place. Values are YAML; list indices start at 0.

    A new model.name or split.method is applied first and removes the options of the previous one.

    Args:
        document: The document to change.
        overrides: Overrides, each `section.key=value`.
        location: Source location for problems; None for the command line.

    Raises:
        ConfigError: An override has no `=`, or its key leads into a scalar.
    """
    for text in sorted(overrides, key=lambda text: not text.startswith(("model.name=", "split.method="))):
        name, equals, value = text.partition("=")
        key: Key = tuple(part.strip() for part in name.split("."))
        if not equals or not all(key):
            raise ConfigError(
                f"{text!r} is not an override", hint="write it as section.key=value, such as train.epochs=3"
            )
        if len(key) > yaml12.MAX_DEPTH:
            raise ConfigError(f"{_short(text)} is more than {yaml12.MAX_DEPTH} levels deep")
        try:
            parsed = yaml12.parse(value)
        except yaml.YAMLError as error:
            raise ConfigError(
                f"{_short(text)}: the value is not YAML: {_reason(error)}", hint="quote it: 'section.key=\"a: b\"'"
            ) from error
        if key == _MODEL_NAME:
            _drop_model_options(document, parsed)
        elif key == _SPLIT_METHOD:
            _drop_split_options(document, parsed)
        set_key = _set(document.values, key, parsed, text)
        for replaced in [key for key in document.locations if key[: len(set_key)] == set_key]:
            del document.locations[replaced]
        document.locations[set_key] = location or OF_OVERRIDE + text


def _short(text: str) -> str:
    """Quote an override, truncated to 200 characters."""
    return repr(text) if len(text) <= 200 else f"{text[:200]!r}…"


def _drop_model_options(document: Document, name: Any) -> None:
    """Drop the options of the previous model, and their entries in `tune.space`."""
    model = document.values.get("model")
    if (model.get("name", DEFAULT_MODEL) if isinstance(model, dict) else DEFAULT_MODEL) == name:
        return
    if isinstance(model, dict):
        document.values["model"] = {key: value for key, value in model.items() if key in _OF_EVERY_MODEL}
    tune = document.values.get("tune")
    space = tune.get("space") if isinstance(tune, dict) else None
    if isinstance(tune, dict) and isinstance(space, dict):
        kept = {key: value for key, value in space.items() if not str(key).startswith("model.")}
        document.values["tune"] = {**tune, "space": kept} if kept else None


def _drop_split_options(document: Document, method: Any) -> None:
    """Drop split options absent from the new method, or of another type there: `valid` of files is no fraction."""
    known, split = splits(), document.values.get("split")
    if isinstance(split, dict) and {str(split.get("method")), str(method)} <= set(known):
        before, after = (known[name].model_fields for name in (split["method"], method))
        document.values["split"] = {
            key: value
            for key, value in split.items()
            if key not in before or (key in after and before[key].annotation == after[key].annotation)
        }


def _set(values: dict[str, Any], key: Key, value: Any, text: str) -> Key:
    """Set one value and return its key path, with integer list indices."""
    here: Any = values
    path: list[str | int] = []
    for depth, name in enumerate(key):
        part = _part(here, str(name), text, ".".join(map(str, key[:depth])))
        path.append(part)
        if depth == len(key) - 1:
            here[part] = value
        elif isinstance(here, dict) and here.get(part) is None:
            here[part] = here = {}
        elif tuple(path) in _BY_NAME and isinstance(here[part], str):
            here[part] = here = {"name": here[part]}
        else:
            here = here[part]
    return tuple(path)


def _part(here: Any, name: str, text: str, parent: str) -> str | int:
    """Return a part of an override's key as a mapping key or a list index."""
    if isinstance(here, dict):
        return name
    if not isinstance(here, list):
        hint = f"write {parent}.{_NAMED_BY[parent]}={here}" if parent in _NAMED_BY else None
        raise ConfigError(f"{text!r}: {parent} is {here!r} and has no key {name!r}", hint=hint)
    if not name.isdecimal() or int(name) >= len(here):
        indices = f"0 to {len(here) - 1}" if here else "none, the list is empty"
        raise ConfigError(f"{text!r}: {parent} is a list; {name!r} is not an index of it ({indices})")
    return int(name)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        near = suggest(path.name, [other.name for other in path.parent.glob("*.yaml")])
        raise ConfigError(
            f"no config file {path}{near}",
            hint="`recsys ls configs` lists the included configs; `recsys init` writes one",
        ) from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ConfigError(f"{path}:{line}: not UTF-8: byte 0x{error.object[error.start]:02x}") from error
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error


def _location(path: Path, text: str, error: yaml.YAMLError) -> str:
    if isinstance(error, ReaderError):
        return f"{path}:{text.count(chr(10), 0, error.position) + 1}"
    mark = getattr(error, "problem_mark", None)
    return f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)


def _reason(error: yaml.YAMLError) -> str:
    if isinstance(error, ReaderError):
        return f"invalid character U+{error.character:04X}"
    parts = [getattr(error, "context", None), getattr(error, "problem", None)]
    return ", ".join(part for part in parts if part) or str(error)


def _collect_locations(node: yaml.Node, key: Key, path: str, locations: dict[Key, str], duplicates: list[str]) -> None:
    if isinstance(node, yaml.MappingNode):
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                line = key_node.start_mark.line + 1
                raise ConfigError(f"{path}:{line}: a key has to be text", hint="quote a value that begins with { or [")
            inner = (*key, key_node.value)
            location = f"{path}:{key_node.start_mark.line + 1}"
            if inner in locations:
                duplicates.append(f"{location}: duplicate key {'.'.join(map(str, inner))}, first at {locations[inner]}")
            locations[inner] = location
            _collect_locations(value_node, inner, path, locations, duplicates)
    elif isinstance(node, yaml.SequenceNode):
        for index, value_node in enumerate(node.value):
            locations[*key, index] = f"{path}:{value_node.start_mark.line + 1}"
            _collect_locations(value_node, (*key, index), path, locations, duplicates)


def limit_problems(document: Document) -> list[str]:
    """Return one line for each value, as from Python, that YAML cannot hold: more than 64 bits, NUL, or too many levels."""
    return [
        f"{f'{location}: ' if (location := document.location(key)) else ''}{'.'.join(map(str, key))}: {problem}"
        for key, problem in _unwritable(document.values, ())
    ]


def _unwritable(value: Any, key: Key) -> Iterator[tuple[Key, str]]:
    if len(key) > yaml12.MAX_DEPTH:
        yield key[:1], f"has more than {yaml12.MAX_DEPTH} levels"
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _unwritable(inner, (*key, name))
    elif isinstance(value, list | tuple):
        for position, inner in enumerate(value):
            yield from _unwritable(inner, (*key, position))
    elif isinstance(value, int) and not yaml12.fits(value):
        yield key, "does not fit into 64 bits"
    elif isinstance(value, str) and not yaml12.is_text(value):
        yield key, f"has NUL or a lone surrogate: {value!r}"
