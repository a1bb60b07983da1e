"""Roles of columns, and errors for unsuitable columns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import Role
from recsys_cli.ops.plan import FeaturePlan

TABLES = {
    "interactions": pa.schema([
        ("user", pa.int32()), ("item", pa.int32()), ("click", pa.int8()), ("buy", pa.int8()), ("boost", pa.float32()),
        ("tags", pa.list_(pa.string())), ("scores", pa.list_(pa.float32())), ("name", pa.string()),
    ]),
    "items": pa.schema([
        ("item", pa.int32()), ("genres", pa.list_(pa.string())), ("shares", pa.list_(pa.float32())), ("fame", pa.float32()),
    ]),
}  # fmt: skip
OPS: list[dict[str, Any]] = [
    {"op": "JoinExternal", "table": "items", "on": "item", "columns": ["genres", "shares", "fame"]},
    {"op": "Categorify", "columns": ["user", "item", "genres", "tags"]},
]


def plan(**named: Any) -> FeaturePlan:
    return FeaturePlan.model_validate({"user": "user", "item": "item", "label": "click", "ops": OPS} | named)


def test_roles_of_columns() -> None:
    named = plan(label=["click", "buy"], weight="boost", list_weights={"tags": "scores", "genres": "shares"})
    assert named.labels == ("click", "buy")
    assert named.roles == {
        "user": Role.USER, "item": Role.ITEM, "click": Role.LABEL, "buy": Role.LABEL, "boost": Role.WEIGHT,
        "scores": Role.LIST_WEIGHT, "shares": Role.LIST_WEIGHT,
    }  # fmt: skip
    assert set(named.compile(TABLES).reads) == {"user", "item", "click", "buy", "boost", "tags", "scores"}
    assert plan().labels == ("click",)
    assert plan().model_dump(mode="json")["label"] == "click"


def test_a_plan_without_a_label_is_refused() -> None:
    with pytest.raises(ValidationError, match="at least 1 item"):
        plan(label=[])


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"weight": "boots"}, r"no column 'boots' in the interactions \(did you mean boost\?\)"),
        ({"weight": "fame"}, "the weight 'fame' comes from a table; it has to belong to the interaction"),
        ({"weight": "scores"}, "weight: 'scores' holds a list in each row .*, and the weight has to be one value"),
        ({"label": "scores"}, "label: 'scores' holds a list in each row .*, and the label has to be one value"),
        ({"timestamp": "scores"}, "timestamp: 'scores' holds a list in each row .*, and the timestamp has to be one"),
        ({"item": "tags"}, "item: 'tags' holds a list in each row .*, and the item has to be one value; name another"),
        ({"user": "tags"}, "user: 'tags' holds a list in each row .*, and the user has to be one value; name another"),
        ({"weight": "name"}, "'name' is not a number"),
        ({"weight": "tags"}, "the weight 'tags' is categorified; a weight has to be a number"),
        ({"weight": "click"}, "'click' is named as label and as weight; a column plays one part"),
        ({"label": ["click", "click"]}, "'click' is named as label and as label; a column plays one part"),
        ({"label": ["click", "tags"]}, "the label 'tags' is categorified"),
        ({"label": ["click", "fame"]}, "the label 'fame' comes from a table"),
        ({"drop": ["boost"], "weight": "boost"}, "'boost' is dropped, and it is named as weight"),
        ({"list_weights": {"tag": "scores"}}, "list_weights: no op makes ids of 'tag'"),
        ({"list_weights": {"user": "scores"}}, "list_weights: 'user' is no column of categorified lists"),
        ({"list_weights": {"tags": "boost"}}, "list_weights: 'boost' holds no list in each row, as 'tags' does"),
        ({"list_weights": {"tags": "genres"}}, "the list_weight 'genres' is categorified"),
        ({"list_weights": {"tags": "shares"}}, "list_weights: 'tags' and 'shares' have to belong to the same table"),
        ({"list_weights": {"tags": "score"}}, r"no column 'score' in the interactions \(did you mean scores\?\)"),
        ({"list_weights": {"tags": "scores"}, "drop": ["tags"]}, "no op makes ids of 'tags', or it is dropped"),
    ],
)
def test_an_unsuitable_column_for_a_role_is_reported(named: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan(**named).compile(TABLES)
