"""Initial sections of a config for a plain interactions table."""

from __future__ import annotations

from typing import Any

from recsys_cli.ops.expression import Binary, LiteralValue, Name, shown


def starting_sections(
    *,
    user: str,
    item: str,
    rating: str | None = None,
    label: str | None = None,
    timestamp: str | None = None,
    ranks: bool = True,
) -> dict[str, Any]:
    """Return the `split` and `features` sections.

    A rating above 3 is positive; without rating and label, every interaction is. A time column makes the split temporal. If the
    items are ranked, rows with another label than 1 are left out.
    """
    ops: list[dict[str, Any]] = [{"op": "Categorify", "columns": [user, item]}]
    if label is not None and ranks:
        ops.insert(0, {"op": "Filter", "expression": shown(Binary("==", Name(label), LiteralValue(1)))})
    if label is None:
        expression = "1" if rating is None else positive(rating)
        ops.append({"op": "LambdaOp", "expression": expression, "output": "label", "dtype": "int8"})
    split = {"method": "temporal"} if timestamp else {"method": "random", "seed": 42}
    features = {"user": user, "item": item, "label": label or "label", "timestamp": timestamp, "ops": ops}
    return {"split": {**split, "valid": 0.1, "test": 0.1}, "features": features}


def positive(rating: str, above: float = 3) -> str:
    """Return the expression `rating > 3`."""
    return shown(Binary(">", Name(rating), LiteralValue(above)))
