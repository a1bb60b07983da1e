"""Expressions: grammar, types and errors."""

from __future__ import annotations

import ast

import pyarrow as pa
import pytest

from recsys_cli.errors import ConfigError
from recsys_cli.ops.expression import (
    FUNCTIONS,
    Binary,
    Call,
    Kind,
    LiteralValue,
    Name,
    Unary,
    check,
    columns,
    kind,
    kind_of_type,
    parse,
    shown,
)

A, B, C = Name("a"), Name("b"), Name("c")


def test_parse_builds_a_tree() -> None:
    assert parse("rating > 3") == Binary(">", Name("rating"), LiteralValue(3))
    assert parse("-a + 2.5") == Binary("+", Unary("-", Name("a")), LiteralValue(2.5))
    assert parse("a and not b and c") == Binary("and", Binary("and", Name("a"), Unary("not", Name("b"))), Name("c"))


def test_columns_of_an_expression() -> None:
    assert columns(parse("(a + b) / 2 > c or a == 'x'")) == {"a", "b", "c"}
    assert columns(parse("if(is_null(a), clip(b, 0, 1), column('my c'))")) == {"a", "b", "my c"}


@pytest.mark.parametrize(
    "text",
    ["if(a, b, c)", " if ( a , b , c ) ", "b if a else c", "b if(a)else c", "b if (a) else (c)", "(b) if (a) else c"],
)
def test_if_is_a_function_and_stands_between_as_in_python(text: str) -> None:
    assert parse(text) == Call("if", (A, B, C))


def test_if_is_a_function_at_any_operand() -> None:
    chosen = Call("if", (A, B, C))
    assert parse("not if(a, b, c)") == Unary("not", chosen)
    assert parse("a + if(a, b, c)") == Binary("+", A, chosen)
    assert parse("a and if(a, b, c)") == Binary("and", A, chosen)
    assert parse("if(if(a, b, c), b, c)") == Call("if", (chosen, B, C))
    assert parse("a if if(a, b, c) else if(a, b, c)") == Call("if", (chosen, A, chosen))
    assert parse("'if(x)' == a") == Binary("==", LiteralValue("if(x)"), A)
    assert parse(r"'it\'s if (x)' == a") == Binary("==", LiteralValue("it's if (x)"), A)


def test_column_accepts_any_name() -> None:
    assert parse("column('my column') > 3") == Binary(">", Name("my column"), LiteralValue(3))
    assert parse('column("class")') == Name("class")
    with pytest.raises(ConfigError, match=r"column\('my name'\)"):
        parse("column(a)")


@pytest.mark.parametrize(
    "text",
    [
        *(
            "__import__('os')",
            "a.b",
            "a.lower()",
            "a[0]",
            "lambda: 1",
            "f(a)",
            "log(x=1)",
            "log(*a)",
            "column(name='a')",
        ),
        *(
            "1 < a < 3",
            "[a]",
            "a ** 2",
            "(a := 1)",
            "f'{a}'",
            "b'a'",
            "None",
            "1j",
            "if",
            "if a",
            "if(a, b, c",
            "a\0b",
            "",
        ),
    ],
)
def test_parse_refuses_constructs_outside_the_grammar(text: str) -> None:
    with pytest.raises(ConfigError, match=r"not allowed|cannot read|without the name"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rating >", r"cannot read the expression .rating >.*column"),
        ("'ü' == a or é ** 2 > 1", r"has 'é \*\* 2', which is not allowed"),
        ("if(a, b, c).x > 3", r"has 'if\(a, b, c\).x', which is not allowed"),
        ("lenght(a)", r"calls lenght, which is not allowed \(did you mean length\?\)"),
        ("log(a, 2)", "2 arguments; it takes one"),
        ("if(a, b)", "it takes 3"),
        ("9223372036854775808", "out of range"),
        ("1e999", "out of range"),
    ],
)
def test_parse_points_at_the_mistake(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(text)


@pytest.mark.parametrize("text", ["category=Toys", "year > 3 and (category = 'Toys')"])
def test_a_single_equal_sign_has_a_hint(text: str) -> None:
    with pytest.raises(ConfigError, match="invalid syntax at column") as error:
        parse(text)
    assert "with ==" in str(error.value.hint)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 190 + "a" + ")" * 190 + " > " + "a" * 5_000,
        "-" * 3_000 + "a",
        "not " * 900 + "a",
        "+".join("a" * 1_000),
        " and ".join("a" * 500),
        "(" * 1_000 + "a" + ")" * 1_000,
        "log(" * 90 + "a" + ")" * 90,
        "max(a, " * 30 + "b" + ")" * 30,
    ],
)
def test_long_and_deep_expressions_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"long|deep|nested|too many|cannot read"):
        parse(text)


def test_a_ladder_of_conditions_is_not_too_large() -> None:
    steps = range(60)
    ladder = parse("".join(f"if(a == {step}, {step}, " for step in steps) + "b" + ")" * len(steps))
    total = parse(" + ".join("a" * 100))
    for step in steps:
        assert isinstance(ladder, Call)
        assert ladder.arguments[:2] == (Binary("==", A, LiteralValue(step)), LiteralValue(step))
        ladder = ladder.arguments[2]
    assert ladder == B
    assert shown(total).count("a") == 100


KINDS: dict[str, Kind] = {"number": "number", "truth": "truth", "text": "text"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("number + truth", "number"),
        ("number > 1", "truth"),
        ("is_null(text)", "truth"),
        ("length(lower(text))", "number"),
        ("lower(text)", "text"),
        ("if(number, text, 'x')", "text"),
        ("if(truth, truth, number > 1)", "truth"),
        ("if(truth, truth, number)", "number"),
        ("year(number)", "number"),
    ],
)
def test_kind_is_the_result_type(text: str, expected: str) -> None:
    assert kind(parse(text), KINDS) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 + lower(number)", r"lower takes text, but 'number' in 'lower\(number\)' is a number"),
        ("log(text)", r"log takes a number, but 'text' in 'log\(text\)' is text"),
        ("year('2020-01-01')", r"year takes a number"),
        ("number > 1 and text", r"'and' with text in '\(number > 1\) and text'"),
        ("if(text, 1, 2)", r"if takes a number, but 'text' in .* is text"),
        ("if(number, 1, text)", r"use two of one type"),
        ("lower(text)", r"'lower\(text\)' results in text; use a number"),
    ],
)
def test_a_type_error_shows_its_location(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check(parse(text), KINDS)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_and_dates_are_numbers(unit: str) -> None:
    assert kind_of_type(pa.timestamp(unit, tz="Europe/Oslo"), "t") == "number"
    assert kind_of_type(pa.date32(), "t") == kind_of_type(pa.date64(), "t") == "number"
    with pytest.raises(ConfigError, match="column 't' of type duration"):
        kind_of_type(pa.duration(unit), "t")


@pytest.mark.parametrize(
    "text", ["(a + b) * -c", "not (a > b)", "if(a, 'x', lower(column('my b')))", "-(a / 2) > 1e300", "column('if')"]
)
def test_shown_round_trips(text: str) -> None:
    assert parse(shown(parse(text))) == parse(text)


def test_no_function_except_if_is_a_python_keyword() -> None:
    for name in FUNCTIONS:
        if name != "if":
            assert isinstance(ast.parse(name, mode="eval").body, ast.Name)
