"""Signature of a bundle: raw inputs with their types, and outputs."""

from __future__ import annotations

from typing import Any

from recsys_cli.features.schema import Role, Schema
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.serving.encoder import RowEncoder


def signature(fitted: FittedPlan, schema: Schema) -> dict[str, Any]:
    """Return inputs and outputs as JSON values.

    Returns:
        `inputs`: name, Arrow type and, for user and item, role of each raw column that the features need. `encoded`: name, type,
        cardinality and shape of each model input. `outputs`: the score.
    """
    encoder, roles = RowEncoder(fitted, schema), fitted.plan.roles
    label = schema.labels[0] if schema.labels else None
    meaning = "value of the label" if label is not None and label.is_regression else "logit of the label"
    return {
        "inputs": [
            {"name": name, "type": str(kind), **_role(roles.get(name))} for name, kind in encoder.inputs.items()
        ],
        "encoded": [
            {"name": c.name, "type": c.dtype, "cardinality": c.cardinality, "list": c.ragged, "table": c.table}
            for c in schema.features
        ],
        "outputs": [
            {"name": "score", "type": "float32", "meaning": f"{meaning}, or an order of items only: see model_card.md"}
        ],
    }


def _role(role: Role | None) -> dict[str, str]:
    return {"role": role.value} if role in {Role.USER, Role.ITEM} else {}
