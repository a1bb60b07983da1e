"""YAML 1.2 on top of PyYAML, a YAML 1.1 parser: `on` and `no` are strings, 1e-3 is a number, keys are strings.

Documents may be untrusted, so characters, values (with aliases expanded), nesting depth and digits are bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from typing import Any

import yaml
from yaml.composer import ComposerError
from yaml.constructor import ConstructorError

MAX_CHARACTERS = 1 << 18
MAX_VALUES = 10_000
"""Maximum number of values and keys with aliases expanded: a few hundred bytes of aliases can expand to billions."""
MAX_DEPTH = 50
_MAX_DIGITS = 64
"""Maximum length of a number."""
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


_READ = {*_WORDS, "tag:yaml.org,2002:str", "tag:yaml.org,2002:seq", "tag:yaml.org,2002:map"}


class Loader(yaml.SafeLoader):
    """Loads plain values within bounds, with the scalars of YAML 1.2."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - required by PyYAML; filled below

    def __init__(self, text: str) -> None:
        if len(text) > MAX_CHARACTERS:
            raise yaml.YAMLError(f"{len(text):,} characters, more than the limit of {MAX_CHARACTERS:,}")
        super().__init__(text)
        self._depth = 0
        self._values: dict[yaml.Node, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node:
        """Compose a node and count its values."""
        event = self.peek_event()
        mark = event.start_mark
        if self._depth == MAX_DEPTH:
            raise ComposerError(None, None, f"more than {MAX_DEPTH} levels", mark)
        self._depth += 1
        node: yaml.Node = super().compose_node(parent, index)  # type: ignore[assignment] # None only without an event
        self._depth -= 1
        if isinstance(event, yaml.AliasEvent):
            if node not in self._values:  # the node is incomplete
                raise ComposerError(None, None, "an anchor that contains itself", mark)
        else:
            self._values[node] = 1 + sum(self._values[child] for child in _children(node))
        if self._values[node] > MAX_VALUES:
            raise ComposerError(None, None, f"more than {MAX_VALUES:,} values, with aliases expanded", mark)
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Construct a value; only plain types are allowed."""
        if node.tag not in _READ:
            raise ConstructorError(None, None, f"unsupported type {node.tag!r}", node.start_mark)
        if isinstance(node, yaml.ScalarNode):
            _check_scalar(node)
        return super().construct_object(node, deep=deep)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Construct a mapping; keys stay strings."""
        if not isinstance(node, yaml.MappingNode):
            raise ConstructorError(None, None, "not a mapping", node.start_mark)
        self.flatten_mapping(node)
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise ConstructorError(None, None, "a key has to be text", key.start_mark)
            _check_text(key)
        return {key.value: self.construct_object(value, deep=deep) for key, value in node.value}


def _children(node: yaml.Node) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        yield from chain.from_iterable(node.value)
    elif isinstance(node, yaml.SequenceNode):
        yield from node.value


def _check_scalar(node: yaml.ScalarNode) -> None:
    """Reject a scalar invalid for its tag, such as `!!int foo`, and integers of more than 64 bits."""
    kind = node.tag.rpartition(":")[2]
    if node.tag not in _WORDS:
        return _check_text(node)
    pattern, _ = _WORDS[node.tag]
    if not pattern.match(node.value):
        raise ConstructorError(None, None, f"{node.value[:_MAX_DIGITS]!r} is not a valid {kind}", node.start_mark)
    if kind in {"int", "float"} and len(node.value) > _MAX_DIGITS:
        raise ConstructorError(None, None, f"number with {len(node.value):,} characters", node.start_mark)
    if kind == "int" and not fits(int(node.value.replace("_", ""), 0)):
        raise ConstructorError(None, None, f"{node.value} does not fit into 64 bits", node.start_mark)
    return None


def _check_text(node: yaml.ScalarNode) -> None:
    if not is_text(node.value):
        raise ConstructorError(None, None, "text with NUL or a lone surrogate (\\0, \\ud800)", node.start_mark)


def fits(number: int) -> bool:
    """Whether an integer fits into 64 bits."""
    return -(1 << 63) <= number < 1 << 64


def is_text(text: str) -> bool:
    """Whether a text has neither NUL nor lone surrogates: they are invalid in file names."""
    return "\0" not in text and not any("\ud800" <= letter <= "\udfff" for letter in text)


class Dumper(yaml.SafeDumper):
    """Dumps plain values for `Loader`, without the quotes of YAML 1.1."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - required by PyYAML; filled below

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
        """Indent the elements of a list below their key."""
        super().increase_indent(flow, False)


_Parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml may be missing


class _QuickLoader(Loader, _Parser):
    """Loader with the events of libyaml."""

    check_event, peek_event, get_event = _Parser.check_event, _Parser.peek_event, _Parser.get_event

    def __init__(self, text: str) -> None:
        super().__init__(text)
        _Parser.__init__(self, text)


for _kind in (Loader, Dumper):
    for _tag, (_pattern, _first) in _WORDS.items():
        _kind.add_implicit_resolver(_tag, _pattern, list(_first))


def parse(text: str) -> Any:
    """Parse one YAML value.

    Raises:
        yaml.YAMLError: The text is not YAML.
    """
    return yaml.load(text, Loader=Loader)  # noqa: S506 - a subclass of the safe loader


def compose(text: str) -> yaml.Node | None:
    """Parse YAML into nodes with line numbers.

    Raises:
        yaml.YAMLError: The text is not YAML.
    """
    try:
        return yaml.compose(text, Loader=_QuickLoader)
    except yaml.YAMLError:
        return yaml.compose(text, Loader=Loader)  # the messages of PyYAML name the place better


def construct(node: yaml.Node | None) -> Any:
    """Construct the values of nodes.

    Raises:
        yaml.YAMLError: A value is not of a plain type.
    """
    return None if node is None else Loader("").construct_document(node)


def write(values: Any) -> str:
    """Return plain values as YAML, in their order."""
    return yaml.dump(values, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=110)


def quoted(value: object) -> str:
    """Return a value as YAML on one line, quoted if necessary."""
    plain = yaml.dump([value], Dumper=Dumper, default_flow_style=True, allow_unicode=True, width=10_000).strip()[1:-1]
    if plain.isprintable():
        return plain
    return yaml.dump([value], default_style='"', default_flow_style=True, width=10_000).strip()[1:-1]
