"""Expressions of users, such as `rating > 3`: a small syntax tree, its parser and its types; `evaluate` runs it."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from keyword import iskeyword
from typing import Literal
from unicodedata import normalize

from recsys_cli.errors import ConfigError
from recsys_cli.packages import pa
from recsys_cli.registry import suggest

Kind = Literal["number", "truth", "text"]
Operator = Literal["+", "-", "*", "/", "<", "<=", ">", ">=", "==", "!=", "and", "or"]


@dataclass(frozen=True)
class Name:
    """Column reference."""

    name: str


@dataclass(frozen=True)
class LiteralValue:
    """Number, text or boolean."""

    value: int | float | str | bool


@dataclass(frozen=True)
class Unary:
    """`-x` or `not x`."""

    operator: Literal["-", "not"]
    operand: Expression


@dataclass(frozen=True)
class Binary:
    """Arithmetic, comparison or logical operation."""

    operator: Operator
    left: Expression
    right: Expression


@dataclass(frozen=True)
class Call:
    """Function call."""

    function: str
    arguments: tuple[Expression, ...]


Expression = Name | LiteralValue | Unary | Binary | Call


def columns(expression: Expression) -> frozenset[str]:
    """Return the column names in an expression."""
    match expression:
        case Name(name):
            return frozenset({name})
        case Unary(_, operand):
            return columns(operand)
        case Binary(_, left, right):
            return columns(left) | columns(right)
        case Call(_, arguments):
            return frozenset().union(*map(columns, arguments))
        case LiteralValue():
            return frozenset()


def shown(expression: Expression) -> str:
    """Return the source text of an expression, for messages."""
    match expression:
        case Name(name):
            # The parser normalizes other names, such as those with a ligature, to different ones.
            plain = name.isidentifier() and not iskeyword(name) and normalize("NFKC", name) == name
            return name if plain else f"column({name!r})"
        case LiteralValue(value):
            return repr(value)
        case Unary(operator, operand):
            return f"{operator}{' ' * (operator == 'not')}{_inner(operand)}"
        case Binary(operator, left, right):
            return f"{_inner(left)} {operator} {_inner(right)}"
        case Call(function, arguments):
            return f"{function}({', '.join(map(shown, arguments))})"


def _inner(expression: Expression) -> str:
    text = shown(expression)
    return f"({text})" if isinstance(expression, Binary) else text


Takes = Literal["number", "text", "any"]


@dataclass(frozen=True)
class Function:
    """Signature of a function; booleans count as numbers.

    Attributes:
        gives: Result type; None for the type of the last two arguments.
    """

    takes: tuple[Takes, ...]
    gives: Kind | None


_NUMBER: tuple[Takes, ...] = ("number",)
FUNCTIONS: dict[str, Function] = {
    "is_null": Function(("any",), "truth"),
    "if": Function(("number", "any", "any"), None),
    "log": Function(_NUMBER, "number"),
    "round": Function(_NUMBER, "number"),
    "min": Function(_NUMBER * 2, "number"),
    "max": Function(_NUMBER * 2, "number"),
    "clip": Function(_NUMBER * 3, "number"),
    "year": Function(_NUMBER, "number"),
    "month": Function(_NUMBER, "number"),
    "day": Function(_NUMBER, "number"),
    "weekday": Function(_NUMBER, "number"),
    "hour": Function(_NUMBER, "number"),
    "minute": Function(_NUMBER, "number"),
    "length": Function(("text",), "number"),
    "lower": Function(("text",), "text"),
}

FIRST_SECOND, LAST_SECOND = -62_135_596_800, 253_402_300_799
"""Years 1 to 9999, the range of calendar functions, in seconds since 1970 UTC."""


_CALCULATIONS = frozenset({"+", "-", "*", "/"})
_CALCULATING = _CALCULATIONS | {"and", "or"}
_IN_WORDS = {"number": "a number", "truth": "a boolean", "text": "text"}


def kind(expression: Expression, kinds: Mapping[str, Kind]) -> Kind:
    """Return the type of an expression, from the types of its columns.

    Raises:
        ConfigError: Arithmetic on text, a comparison of text with numbers, or a wrong argument type.
    """
    match expression:
        case Name(name):
            return kinds[name]
        case LiteralValue(value):
            return "text" if isinstance(value, str) else "truth" if isinstance(value, bool) else "number"
        case Unary(symbol, operand):
            if kind(operand, kinds) == "text":
                raise ConfigError(f"{symbol!r} before text in {shown(expression)!r}; compare text only with text")
            return "number" if symbol == "-" else "truth"
        case Binary(symbol, left, right):
            texts = [kind(left, kinds), kind(right, kinds)].count("text")
            if texts and (texts == 1 or symbol in _CALCULATING):
                raise ConfigError(f"{symbol!r} with text in {shown(expression)!r}; compare text only with text")
            return "number" if symbol in _CALCULATIONS else "truth"
        case Call():
            return _kind_of_call(expression, kinds)


def _kind_of_call(call: Call, kinds: Mapping[str, Kind]) -> Kind:
    function = FUNCTIONS[call.function]
    given = [kind(argument, kinds) for argument in call.arguments]
    for argument, expected, actual in zip(call.arguments, function.takes, given, strict=True):
        if expected != "any" and (expected == "text") != (actual == "text"):
            raise ConfigError(
                f"{call.function} takes {_IN_WORDS[expected]}, but {shown(argument)!r} in {shown(call)!r} is {_IN_WORDS[actual]}"
            )
    if function.gives is not None:
        return function.gives
    one, other = given[-2:]
    if one != other and "text" in {one, other}:
        raise ConfigError(f"{shown(call)!r} has a text and a number as results; use two of one type")
    return one if one == other else "number"


def check(expression: Expression, kinds: Mapping[str, Kind]) -> None:
    """Check that an expression results in a number or a boolean; a `ConfigError` for text and type errors."""
    if kind(expression, kinds) == "text":
        raise ConfigError(f"{shown(expression)!r} results in text; use a number, or a comparison for 1 and 0")


def kind_of_type(raw: pa.DataType, column: str) -> Kind:
    """Return the type of a raw column in expressions; times and dates are seconds."""
    types = pa.types
    if types.is_dictionary(raw):
        raw = raw.value_type
    if types.is_boolean(raw):
        return "truth"
    if types.is_integer(raw) or types.is_floating(raw) or types.is_null(raw):
        return "number"
    if types.is_timestamp(raw) or types.is_date(raw):
        return "number"
    if types.is_string(raw) or types.is_large_string(raw):
        return "text"
    raise ConfigError(f"an expression reads column {column!r} of type {raw}; use numbers, times or text")


_LONGEST, _DEEPEST, _LARGEST = 4_000, 100, 5_000
_ARITHMETIC: dict[type[ast.operator], Operator] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
_COMPARISON: dict[type[ast.cmpop], Operator] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip
_TOKEN = re.compile(r"""\s+|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\w+|.""", re.DOTALL)
_SINGLE_EQUAL = re.compile("(?<![=<>!])=(?!=)")
_BOLD_IF = "\U0001d422\U0001d41f"
"""`if` as a name for Python's parser, which normalizes letter variants in names, but not in keywords."""
_BETWEEN = frozenset({"and", "or", "not", "if", "else"})
"""Keywords before an operand."""


def parse(text: str, functions: Mapping[str, Function] = FUNCTIONS) -> Expression:
    """Parse an expression.

    Raises:
        ConfigError: Invalid syntax, or a construct outside the grammar; the message shows the part in question.
    """
    text = text.strip()
    if len(text) > _LONGEST:
        raise ConfigError(f"the expression is too long: {len(text):,} characters; the maximum is {_LONGEST:,}")
    try:
        tree = ast.parse("".join(_callable_if(text)), mode="eval")
    except SyntaxError as error:
        problem = f"cannot read the expression {text!r}: {error.msg.partition('. ')[0]} at column {error.offset}"
        hint = "compare with ==, and put text in quotes: category == 'Toys'" if _SINGLE_EQUAL.search(text) else None
        raise ConfigError(problem, hint=hint) from error
    except (ValueError, MemoryError, RecursionError) as error:
        raise ConfigError(f"cannot read the expression {text!r}: {error or 'it is nested too deeply'}") from error
    expression = _Reader(text, functions).expression(tree.body, 1)
    if _size(expression) > _LARGEST:
        raise ConfigError(f"the expression {text!r} nests too many function calls; split it into several ops")
    return expression


def _size(expression: Expression) -> int:
    """Count the nodes that an engine may generate; arguments of functions may be copied."""
    match expression:
        case Unary(_, operand):
            return 1 + _size(operand)
        case Binary(_, left, right):
            return 1 + _size(left) + _size(right)
        case Call("if", (condition, then, otherwise)):
            return 1 + 2 * _size(condition) + _size(then) + _size(otherwise)
        case Call(_, arguments):
            return 1 + 3 * sum(map(_size, arguments))
    return 1


def _callable_if(text: str) -> Iterator[str]:
    """Yield the tokens of a text, with calls of `if` as a name; the `if` of `a if (b) else c` is no call."""
    before = ""
    pieces = [piece for piece in _TOKEN.findall(text) if piece]
    for position, piece in enumerate(pieces):
        after = next((other for other in pieces[position + 1 :] if not other.isspace()), "")
        follows_operand = re.fullmatch(r"""\w+|["'].*["']|[)\]}]""", before, re.DOTALL) and before not in _BETWEEN
        yield _BOLD_IF if piece == "if" and after == "(" and not follows_operand else piece
        before = before if piece.isspace() else piece


class _Reader:
    """Converts Python's syntax tree, and locates unsupported nodes in errors."""

    def __init__(self, text: str, functions: Mapping[str, Function]) -> None:
        self._text, self._functions = text, functions

    def expression(self, node: ast.expr, depth: int) -> Expression:
        if depth > _DEEPEST:
            raise ConfigError(f"the expression {self._text!r} is nested deeper than {_DEEPEST} levels")
        below = depth + 1
        match node:
            case ast.Name(id=name):
                return Name(name)
            case ast.Constant(value=bool() | int() | float() | str() as value) if not _too_large(value):
                return LiteralValue(value)
            case ast.UnaryOp(op=ast.USub() | ast.Not() as sign, operand=operand):
                return Unary("not" if isinstance(sign, ast.Not) else "-", self.expression(operand, below))
            case ast.BinOp(left=left, op=arithmetic, right=right) if type(arithmetic) in _ARITHMETIC:
                return Binary(_ARITHMETIC[type(arithmetic)], *self._all([left, right], below))
            case ast.Compare(left=left, ops=[compared], comparators=[right]) if type(compared) in _COMPARISON:
                return Binary(_COMPARISON[type(compared)], *self._all([left, right], below))
            case ast.BoolOp(op=logic, values=values):
                return _chain("and" if isinstance(logic, ast.And) else "or", self._all(values, below))
        return self._chosen_or_called(node, below)

    def _chosen_or_called(self, node: ast.expr, depth: int) -> Expression:
        match node:
            case ast.IfExp(test=test, body=body, orelse=otherwise):
                return Call("if", tuple(self._all([test, body, otherwise], depth)))
            case ast.Call(func=ast.Name(id=function), args=arguments, keywords=[]):
                return self._call(function, arguments, depth)
        raise self._refused(node)

    def _all(self, nodes: Sequence[ast.expr], depth: int) -> list[Expression]:
        if len(nodes) > _DEEPEST:  # a chain of `and` is as deep as long
            raise ConfigError(f"the expression {self._text!r} is nested deeper than {_DEEPEST} levels")
        return [self.expression(node, depth) for node in nodes]

    def _call(self, function: str, arguments: list[ast.expr], depth: int) -> Expression:
        if function == "column":
            match arguments:
                case [ast.Constant(value=str() as name)]:
                    return Name(name)
            raise ConfigError(
                f"the expression {self._text!r} has column(...) without a column name; write column('my name')"
            )
        if function not in self._functions:
            near = suggest(function, [*self._functions, "column"])
            raise ConfigError(
                f"the expression {self._text!r} calls {function}, which is not allowed{near}",
                hint=f"the functions are {', '.join(self._functions)} and column",
            )
        arity = len(self._functions[function].takes)
        if len(arguments) != arity:
            takes = "one argument" if arity == 1 else f"{arity} arguments"
            raise ConfigError(
                f"the expression {self._text!r} gives {function} {len(arguments)} arguments; it takes {takes}"
            )
        return Call(function, tuple(self._all(arguments, depth)))

    def _refused(self, node: ast.expr) -> ConfigError:
        piece = ast.get_source_segment("".join(_callable_if(self._text)), node) or ""
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            raise ConfigError(
                f"the expression {self._text!r} has {piece!r}, which is out of range",
                hint="whole numbers are below 2**63, others below 1.8e308",
            )
        return ConfigError(
            f"the expression {self._text!r} has {piece.replace(_BOLD_IF, 'if')!r}, which is not allowed",
            hint="allowed are columns, numbers, text, + - * /, single comparisons, and, or, not, "
            f"column('any name'), and {', '.join(self._functions)}",
        )


def _too_large(value: float | str) -> bool:
    return isinstance(value, int | float) and (value >= 2**63 if type(value) is int else math.isinf(value))


def _chain(operator: Operator, operands: list[Expression]) -> Expression:
    first, *rest = operands
    for operand in rest:
        first = Binary(operator, first, operand)
    return first
