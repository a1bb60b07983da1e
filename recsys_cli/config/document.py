"""A YAML file as plain values, with the line of every key, and overrides of the form section.key=value put over it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from yaml.reader import ReaderError

from recsys_cli.config import yaml12
from recsys_cli.errors import ConfigError
from recsys_cli.features.split import split_options
from recsys_cli.registry import DEFAULT_MODEL, suggest

Key = tuple[str | int, ...]
OF_OVERRIDE = "override "
"""What the place of a value begins with that came from the line which recsys was called with."""
_BY_NAME: frozenset[Key] = frozenset({("train", "schedule")})
"""Keys at which a bare NAME stands for {name: NAME}, so that an override may go into it."""
_MODEL_NAME: Key = ("model", "name")
_SPLIT_METHOD: Key = ("split", "method")
_NAMED_BY = {"dataset": "name", "split": "method", "model": "name"}
"""By section that people write as a word: the key that the word belongs to."""
_OF_EVERY_MODEL = frozenset({"embedding"})
"""What of the model section stays where an override names another model; the rest are options of the one before."""


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
    text = _text(path)
    try:
        root = yaml12.compose(text)
        places: dict[Key, str] = {}
        twice: list[str] = []
        if isinstance(root, yaml.MappingNode):
            _note_places(root, (), str(path), places, twice)
        values = yaml12.construct(root)
    except yaml.YAMLError as error:
        raise ConfigError(f"{_where(path, text, error)}: not YAML: {_reason(error)}") from error
    if not isinstance(values, dict):
        what = "is empty" if values is None else "is no mapping"
        raise ConfigError(
            f"{path}: {what}; a config has sections such as dataset and features",
            hint="recsys init writes one for a table of your own; recsys ls configs shows those that come along",
        )
    if twice:
        raise ConfigError("\n".join(twice))
    return Document(values, places)


def override(document: Document, overrides: Sequence[str], *, place: str | None = None) -> None:
    """Put `section.key=value` over the document; the value is read as YAML, list elements are numbered from 0.

    Another model.name or split.method comes first, and takes the options of the one before away.

    Args:
        document: Is changed.
        overrides: What to put over it.
        place: Where they were written, for problems with them; None for the line that recsys was called with.

    Raises:
        ConfigError: An override has no `=`, or goes through something that is not a mapping or list.
    """
    for text in sorted(overrides, key=lambda text: not text.startswith(("model.name=", "split.method="))):
        name, equals, value = text.partition("=")
        key: Key = tuple(part.strip() for part in name.split("."))
        if not equals or not all(key):
            raise ConfigError(f"{text!r} is not an override", hint="write section.key=value, such as train.epochs=3")
        if len(key) > yaml12.MAX_DEPTH:
            raise ConfigError(f"{_short(text)} is more than {yaml12.MAX_DEPTH} levels deep")
        try:
            parsed = yaml12.parse(value)
        except yaml.YAMLError as error:
            raise ConfigError(
                f"{_short(text)}: the value is not YAML: {_reason(error)}", hint="quote it: 'section.key=\"a: b\"'"
            ) from error
        if key == _MODEL_NAME:
            _forget_options(document, parsed)
        elif key == _SPLIT_METHOD:
            _forget_split(document, parsed)
        set_key = _set(document.values, key, parsed, text)
        for inner in [known for known in document.places if known[: len(set_key)] == set_key]:
            del document.places[inner]  # what it replaced
        document.places[set_key] = place or OF_OVERRIDE + text


def _short(text: str) -> str:
    """Quote an override, and not all of a long one."""
    return repr(text) if len(text) <= 200 else f"{text[:200]!r}…"


def _forget_options(document: Document, name: Any) -> None:
    """Leave out the options of another model, and the values of them that `tune` would search."""
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


def _forget_split(document: Document, method: Any) -> None:
    """Leave out what another split does not have, or has with values of another type: `valid` of files is no share."""
    split = document.values.get("split")
    before = split_options(split.get("method")) if isinstance(split, dict) else None
    after = split_options(method)
    if isinstance(split, dict) and before is not None and after is not None and before != after:
        document.values["split"] = {
            key: value for key, value in split.items() if key not in before or before[key] == after.get(key)
        }


def _set(values: dict[str, Any], key: Key, value: Any, text: str) -> Key:
    """Set one value and return its key with list positions as numbers."""
    here: Any = values
    found: list[str | int] = []
    for depth, name in enumerate(key):
        part = _step(here, str(name), text, ".".join(map(str, key[:depth])))
        found.append(part)
        if depth == len(key) - 1:
            here[part] = value
        elif isinstance(here, dict) and here.get(part) is None:
            here[part] = here = {}
        elif tuple(found) in _BY_NAME and isinstance(here[part], str):
            here[part] = here = {"name": here[part]}
        else:
            here = here[part]
    return tuple(found)


def _step(here: Any, name: str, text: str, parent: str) -> str | int:
    """Read a part of an override's name as a key or as a position, by what it leads into."""
    if isinstance(here, dict):
        return name
    if not isinstance(here, list):
        hint = f"write {parent}.{_NAMED_BY[parent]}={here}" if parent in _NAMED_BY else None
        raise ConfigError(f"{text!r}: {parent} is {here!r}, which has no {name!r} in it", hint=hint)
    if not name.isdecimal() or int(name) >= len(here):
        positions = f"0 to {len(here) - 1}" if here else "none, it is empty"
        raise ConfigError(f"{text!r}: {parent} is a list, and {name!r} is no position in it ({positions})")
    return int(name)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        near = suggest(path.name, [other.name for other in path.parent.glob("*.yaml")])
        raise ConfigError(
            f"no config file {path}{near}", hint="recsys ls configs shows which there are; recsys init writes one"
        ) from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ConfigError(f"{path}:{line}: not UTF-8: byte 0x{error.object[error.start]:02x}") from error
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error


def _where(path: Path, text: str, error: yaml.YAMLError) -> str:
    if isinstance(error, ReaderError):
        return f"{path}:{text.count(chr(10), 0, error.position) + 1}"
    mark = getattr(error, "problem_mark", None)
    return f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)


def _reason(error: yaml.YAMLError) -> str:
    if isinstance(error, ReaderError):
        return f"the character U+{error.character:04X}, which may not be in a text"
    parts = [getattr(error, "context", None), getattr(error, "problem", None)]
    return ", ".join(part for part in parts if part) or str(error)


def _note_places(node: yaml.Node, key: Key, path: str, places: dict[Key, str], twice: list[str]) -> None:
    if isinstance(node, yaml.MappingNode):
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                line = key_node.start_mark.line + 1
                raise ConfigError(f"{path}:{line}: a key has to be text", hint="quote a value that begins with { or [")
            inner = (*key, key_node.value)
            place = f"{path}:{key_node.start_mark.line + 1}"
            if inner in places:
                twice.append(f"{place}: {'.'.join(map(str, inner))} is there twice, first at {places[inner]}")
            places[inner] = place
            _note_places(value_node, inner, path, places, twice)
    elif isinstance(node, yaml.SequenceNode):
        for index, value_node in enumerate(node.value):
            places[*key, index] = f"{path}:{value_node.start_mark.line + 1}"
            _note_places(value_node, (*key, index), path, places, twice)
