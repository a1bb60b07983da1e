"""YAML as people expect it: `on` and `no` are words, 1e-3 is a number, keys are text. PyYAML alone reads YAML 1.1."""

from __future__ import annotations

import re
from typing import Any

import yaml

_WORDS = {
    "tag:yaml.org,2002:bool": (re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), "tTfF"),
    "tag:yaml.org,2002:null": (re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]),
    "tag:yaml.org,2002:int": (re.compile(r"^[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F]+)$"), "-+0123456789"),
    "tag:yaml.org,2002:float": (
        re.compile(r"^(?:[-+]?(?:[0-9][0-9_]*\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan)$"),
        "-+.0123456789",
    ),
    "tag:yaml.org,2002:merge": (re.compile(r"^<<$"), "<"),
}


class Loader(yaml.SafeLoader):
    """Reads plain values, with the words and numbers of YAML 1.2."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - how PyYAML wants it; filled below

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Read a mapping; its keys are taken as they are written."""
        self.flatten_mapping(node)
        return {key.value: self.construct_object(value, deep=deep) for key, value in node.value}


class Dumper(yaml.SafeDumper):
    """Writes what `Loader` reads, with no quotes that only YAML 1.1 needs."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - how PyYAML wants it; filled below

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
        """Indent the elements of a list below their key."""
        super().increase_indent(flow, False)


for _kind in (Loader, Dumper):
    for _tag, (_pattern, _first) in _WORDS.items():
        _kind.add_implicit_resolver(_tag, _pattern, list(_first))


def parse(text: str) -> Any:
    """Read one YAML value.

    Raises:
        yaml.YAMLError: It is not YAML.
    """
    return yaml.load(text, Loader=Loader)  # noqa: S506 - a subclass of the safe loader


def compose(text: str) -> yaml.Node | None:
    """Read YAML as nodes, which know their lines.

    Raises:
        yaml.YAMLError: It is not YAML.
    """
    node: yaml.Node | None = yaml.compose(text, Loader=Loader)
    return node


def write(values: Any) -> str:
    """Write plain values, in their order."""
    return yaml.dump(values, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=110)


def quoted(value: object) -> str:
    """Write a value, such as a text, so that it may stand anywhere on a line, in quotes where it needs them."""
    plain = yaml.dump([value], Dumper=Dumper, default_flow_style=True, allow_unicode=True, width=10_000).strip()[1:-1]
    if plain.isprintable():
        return plain
    return yaml.dump([value], default_style='"', default_flow_style=True, width=10_000).strip()[1:-1]
