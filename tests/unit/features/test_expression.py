"""Expressions: a small grammar, and nothing outside it."""

from __future__ import annotations

import pytest

from recsys_cli.errors import ConfigError
from recsys_cli.features.expression import Binary, Literally, Name, Unary, columns, parse


def test_parse_builds_a_tree() -> None:
    assert parse("rating > 3") == Binary(">", Name("rating"), Literally(3))
    assert parse("-a + 2.5") == Binary("+", Unary("-", Name("a")), Literally(2.5))
    assert parse("a and not b and c") == Binary("and", Binary("and", Name("a"), Unary("not", Name("b"))), Name("c"))


def test_columns_are_those_that_are_read() -> None:
    assert columns(parse("(a + b) / 2 > c or a == 'x'")) == {"a", "b", "c"}


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "a.b",
        "a[0]",
        "lambda: 1",
        "f(a)",
        "1 < a < 3",
        "a if b else c",
        "[a]",
        "a ** 2",
        "(a := 1)",
        "9223372036854775808",
    ],
)
def test_parse_refuses_what_is_not_in_the_grammar(text: str) -> None:
    with pytest.raises(ConfigError, match=r"not allowed|cannot read"):
        parse(text)


def test_parse_points_at_the_mistake() -> None:
    with pytest.raises(ConfigError, match=r"cannot read the expression .rating >.*column"):
        parse("rating >")
