"""A YAML file as plain values, with the line of every key, and overrides of the form section.key=value put over it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from recsys_cli.errors import ConfigError

Key = tuple[str | int, ...]


@dataclass
class Document:
    """Plain values and where each was written.

    Attributes:
        values: Mappings, lists and scalars.
        places: For each key path, "file:line" or the override that set it.
    """

    values: dict[str, Any]
    places: dict[Key, str] = field(default_factory=dict)

    def place(self, key: Key) -> str:
        """Return where a key was written, or its nearest parent."""
        while key and key not in self.places:
            key = key[:-1]
        return self.places.get(key, "")


def read(path: Path) -> Document:
    """Read a YAML file.

    Raises:
        ConfigError: It does not exist, is not YAML, or says a key twice; with file and line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ConfigError(f"no config file {path}", hint="recsys ls configs, or recsys init to write one") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
        raise ConfigError(f"{where}: not YAML: {getattr(error, 'problem', None) or error}") from error
    if not isinstance(root, yaml.MappingNode):
        raise ConfigError(f"{path}: a config is a mapping with sections such as dataset and features")
    places: dict[Key, str] = {}
    _note_places(root, (), str(path), places)
    return Document(yaml.safe_load(text), places)


def override(document: Document, overrides: Sequence[str]) -> None:
    """Put `section.key=value` over the document; the value is read as YAML, list elements are numbered from 0.

    Raises:
        ConfigError: An override has no `=`, or goes through something that is not a mapping or list.
    """
    for text in overrides:
        path, equals, value = text.partition("=")
        if not equals or not path.strip():
            raise ConfigError(f"{text!r} is not an override", hint="write section.key=value, such as train.epochs=3")
        try:
            parsed = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise ConfigError(f"{text!r}: the value is not YAML: {error}") from error
        key: Key = tuple(int(part) if part.isdigit() else part for part in path.strip().split("."))
        _set(document.values, key, parsed, text)
        document.places[key] = f"override {text}"


def _set(values: Any, key: Key, value: Any, text: str) -> None:
    for part in key[:-1]:
        if isinstance(values, dict):
            values = values.setdefault(part, {})
        elif isinstance(values, list) and isinstance(part, int) and part < len(values):
            values = values[part]
        else:
            raise ConfigError(f"{text!r}: there is nothing at {part!r} to set a key in")
    if isinstance(values, dict) or (isinstance(values, list) and isinstance(key[-1], int) and key[-1] < len(values)):
        values[key[-1]] = value  # type: ignore[index]  # checked just above
    else:
        raise ConfigError(f"{text!r}: there is nothing to set {key[-1]!r} in")


def _note_places(node: yaml.Node, key: Key, path: str, places: dict[Key, str]) -> None:
    if isinstance(node, yaml.MappingNode):
        for key_node, value_node in node.value:
            inner = (*key, key_node.value)
            if inner in places:
                name = ".".join(map(str, inner))
                raise ConfigError(f"{path}:{key_node.start_mark.line + 1}: {name} is there twice")
            places[inner] = f"{path}:{key_node.start_mark.line + 1}"
            _note_places(value_node, inner, path, places)
    elif isinstance(node, yaml.SequenceNode):
        for index, value_node in enumerate(node.value):
            inner = (*key, index)
            places[inner] = f"{path}:{value_node.start_mark.line + 1}"
            _note_places(value_node, inner, path, places)
