"""YAML 1.2 scalars, anchors and round trips."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsys_cli.config import yaml12


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("1E6", 1_000_000.0),
        ("-2.5e+3", -2500.0),
        (".5", 0.5),
        ("1.", 1.0),
        (".inf", float("inf")),
        ("1_000_000", 1_000_000),
        ("0x10", 16),
        ("-3", -3),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("on", "on"),
        ("no", "no"),
        ("Yes", "Yes"),
        ("2024-01-01", "2024-01-01"),
        ("12:30", "12:30"),
        ("010", "010"),
        ("1.2.3", "1.2.3"),
        ("e5", "e5"),
        ("'1e-3'", "1e-3"),
    ],
)
def test_parse_reads_scalars_as_yaml_1_2(text: str, value: object) -> None:
    parsed = yaml12.parse(text)
    assert parsed == value
    assert type(parsed) is type(value)


def test_parse_keeps_a_boolean_key_of_yaml_1_1_as_text() -> None:
    assert yaml12.parse("{on: movieId, 1: x, null: y}") == {"on": "movieId", "1": "x", "null": "y"}


def test_parse_supports_anchors_and_merges() -> None:
    assert yaml12.parse("a: &x {b: 1}\nc: {<<: *x, d: 2}") == {"a": {"b": 1}, "c": {"b": 1, "d": 2}}


# PyYAML writes line separators and control characters of Unicode that it then reads as others; a config has none.
_text = st.text(st.characters(exclude_categories=("Cc", "Cf", "Cs", "Zl", "Zp")), max_size=8)
_scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | _text
_words = st.sampled_from(["on", "no", "1e-3", "010", "null", "true", "12:30", "<<", "=", "2024-01-01", "1.5", "-"])
_values = st.recursive(
    _scalars | _words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_text | _words, inner, max_size=3),
    max_leaves=8,
)


@given(_values)
def test_write_and_both_parsers_are_inverse(value: object) -> None:
    assert yaml12.parse(text := yaml12.write(value)) == yaml12.construct(yaml12.compose(text)) == value


@given(st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=8) | _words)
def test_quoted_is_valid_in_a_list_and_as_a_value(text: str) -> None:
    assert len(yaml12.quoted(text).splitlines()) == 1
    assert yaml12.parse(f"a: {yaml12.quoted(text)}\nb: [{yaml12.quoted(text)}, x]") == {"a": text, "b": [text, "x"]}
