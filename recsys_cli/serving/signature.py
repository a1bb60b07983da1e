"""Signature of a bundle: raw inputs with their types, and outputs."""

from __future__ import annotations

from typing import Any

from recsys_cli.features.fitted_plan import FittedPlan
from recsys_cli.features.program import INTERACTIONS
from recsys_cli.features.schema import Role, Schema

_NOT_INPUTS = frozenset({Role.LABEL, Role.WEIGHT, Role.TIMESTAMP, Role.SAMPLED})


def signature(fitted: FittedPlan, schema: Schema) -> dict[str, Any]:
    """Return inputs and outputs as JSON values.

    Returns:
        `inputs`: name, Arrow type and, for user and item, role of each raw column that the features need. `encoded`: name, type,
        cardinality and shape of each model input. `outputs`: the score.
    """
    raw, roles = fitted.inputs[INTERACTIONS], fitted.plan.roles
    label = schema.labels[0] if schema.labels else None
    meaning = "value of the label" if label is not None and label.is_regression else "logit of the label"
    return {
        "inputs": [
            {"name": name, "type": str(raw.field(name).type), **_role(roles.get(name))}
            for name in needed_inputs(fitted)
        ],
        "encoded": [
            {"name": c.name, "type": c.dtype, "cardinality": c.cardinality, "list": c.ragged, "table": c.table}
            for c in schema.features
        ],
        "outputs": [
            {"name": "score", "type": "float32", "meaning": f"{meaning}, or an order of items only: see model_card.md"}
        ],
    }


def needed_inputs(fitted: FittedPlan) -> list[str]:
    """Return the raw columns of interactions that a feature depends on, in order."""
    names = fitted.inputs[INTERACTIONS].names

    def is_needed(name: str) -> bool:
        lacking = fitted.for_new_rows([other for other in names if other != name]).program.lacking
        return any(
            fitted.plan.roles.get(output) not in _NOT_INPUTS for output in lacking if output not in fitted.plan.drop
        )

    return [name for name in names if is_needed(name)]


def _role(role: Role | None) -> dict[str, str]:
    return {"role": role.value} if role in {Role.USER, Role.ITEM} else {}
