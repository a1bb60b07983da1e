"""User expressions, such as `rating > 3`, parsed to a small syntax tree."""

from recsys_cli.ops.expression.functions import FIRST_SECOND, FUNCTIONS, LAST_SECOND
from recsys_cli.ops.expression.grammar import parse
from recsys_cli.ops.expression.kinds import check, kind, kind_of_type
from recsys_cli.ops.expression.tree import (
    Binary,
    Call,
    Expression,
    Kind,
    LiteralValue,
    Name,
    Operator,
    Unary,
    columns,
    shown,
)

__all__ = [
    "FIRST_SECOND", "FUNCTIONS", "LAST_SECOND", "Binary", "Call", "Expression", "Kind", "LiteralValue", "Name",
    "Operator", "Unary", "check", "columns", "kind", "kind_of_type", "parse", "shown",
]  # fmt: skip
