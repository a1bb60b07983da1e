"""Plans: columns, roles, schema, and all problems at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from recsys_cli.errors import ConfigError, DataError
from recsys_cli.features.schema import Role, Schema
from recsys_cli.ops import AnyOp, Categorify, JoinExternal, JoinGroupby, LambdaOp, Normalize, TargetEncoding
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.ops.plan import FeaturePlan
from tests.strategies import known_state

TABLES = {
    "interactions": pa.schema(
        [("userId", pa.int32()), ("movieId", pa.int32()), ("rating", pa.float32()), ("timestamp", pa.int64())]
    ),
    "movies": pa.schema([("movieId", pa.int32()), ("title", pa.string()), ("genres", pa.list_(pa.string()))]),
}
RECIPE = FeaturePlan(
    user="userId",
    item="movieId",
    label="label",
    timestamp="timestamp",
    ops=(
        JoinExternal(table="movies", on="movieId", columns=("genres",)),
        Categorify(columns=("userId", "movieId", "genres")),
        LambdaOp(expression="rating > 3", output="label", dtype="int8"),
    ),
)


def test_plan_reads_only_what_it_needs_of_the_tables_that_it_needs() -> None:
    assert RECIPE.compile(TABLES).reads == ("movieId", "userId", "rating", "timestamp")
    with pytest.raises(ConfigError, match="no table 'movies'"):
        RECIPE.compile({"interactions": TABLES["interactions"]})
    with pytest.raises(ValidationError, match="at least 1 item"):
        plan(label=[])


def test_plan_names_all_problems_at_once() -> None:
    plan = FeaturePlan(
        user="userid",
        item="movieId",
        label="rating",
        ops=(
            JoinExternal(table="movie", on="movieId", columns=("genres",)),
            JoinExternal(table="movies", on="userId", columns=("titel", "title")),
            Categorify(columns=("movieId", "movieId")),
            LambdaOp(expression="rating > 'three'", output="liked"),
        ),
    )

    with pytest.raises(ConfigError) as found:
        plan.compile(TABLES)

    for problem in (
        "no column 'userid' in the interactions (did you mean userId?)",
        "no table 'movie' (did you mean movies?)",
        "no column 'titel' in table movies (did you mean title?)",
        "the key 'userId' has to be categorified",
        "'title' is not a number, so it has to be categorified",
        "the user column 'userid' has to be in a Categorify op",
        "'movieId' is categorified twice",
        "LambdaOp \"rating > 'three'\": '>' with text in",
    ):
        assert problem in found.value.message


def test_op_with_an_unknown_column_is_the_only_problem_of_its_other_columns() -> None:
    columns = ("userId", "movieId", "title", "titel")
    plan = FeaturePlan(
        user="userId", item="movieId", label="rating",
        ops=(JoinExternal(table="movies", on="movieId", columns=("title",)), Categorify(columns=columns)),
    )  # fmt: skip
    with pytest.raises(ConfigError) as found:
        plan.compile(TABLES)
    assert "no column 'titel'" in found.value.message
    assert "is not a number" not in found.value.message


def test_a_misspelled_role_has_a_suggestion_before_any_table_is_read() -> None:
    plan = RECIPE.model_copy(update={"user": "usrId"})
    assert plan.wrong_roles() == ["the user column 'usrId' has to be in a Categorify op (did you mean userId?)"]


@pytest.mark.parametrize("expression", ["ratng > 3", "rating > 'three'"])
def test_a_wrong_op_is_the_only_problem_of_its_output(expression: str) -> None:
    ops = (*RECIPE.ops[:-1], LambdaOp(expression=expression, output="label", dtype="int8"))
    with pytest.raises(ConfigError) as found:
        RECIPE.model_copy(update={"ops": ops}).compile(TABLES)
    assert len(found.value.message.splitlines()) == 1


def fitted_recipe(**sizes: int) -> FittedPlan:
    words = {
        n: pa.table({"value": [f"{word}" for word in range(size)], "count": range(size, 0, -1)})
        for n, size in sizes.items()
    }
    return FittedPlan(RECIPE, TABLES, known_state(RECIPE, words))


def test_prepared_schema_says_where_columns_live() -> None:
    fitted = fitted_recipe(userId=7, movieId=4, genres=2)
    star, flat = fitted.schema("star"), fitted.schema("flat")
    assert star.names == flat.names == ("userId", "movieId", "label", "timestamp", "genres")
    assert star["genres"].table == "movieId"
    assert flat["genres"].table is None
    assert star["genres"].ragged
    assert star["label"].dtype == "int8"
    assert star.only(Role.ITEM).cardinality == 7
    assert [column.name for column in star.features] == ["userId", "movieId", "genres"]


def test_schema_and_fitted_plan_survive_their_files(tmp_path: Path) -> None:
    fitted = fitted_recipe(userId=2, movieId=2, genres=2)
    schema = fitted.schema("star")
    fitted.write(tmp_path)
    schema.write(tmp_path / "schema.json")
    read = FittedPlan.read(tmp_path)
    assert read == fitted
    assert read.schema("star") == Schema.read(tmp_path / "schema.json") == schema


def test_an_invalid_schema_file_or_column_is_reported(tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text("{}")
    with pytest.raises(DataError, match=r"schema.json: not a schema"):
        Schema.read(tmp_path / "schema.json")
    with pytest.raises(ConfigError, match="no column 'movie' in the prepared data; there are"):
        fitted_recipe(userId=1, movieId=1, genres=1).schema("star")["movie"]


def test_a_label_may_be_numeric_and_old_plans_stay_valid() -> None:
    number = {"name": "rating", "task": "regression"}
    both = FeaturePlan.model_validate({**RECIPE.model_dump(), "label": ["label", number]})
    assert both.labels == ("label", "rating")
    assert both.tasks == {"label": "binary", "rating": "regression"}
    assert FeaturePlan.model_validate_json(both.model_dump_json()) == both
    first = FeaturePlan.model_validate({**RECIPE.model_dump(), "label": [number, "label"]})
    one = {name: pa.table({"value": [1], "count": [1]}) for name in first.categorified}
    state = known_state(first, one)
    assert [(c.name, c.is_regression) for c in FittedPlan(first, TABLES, state).schema("star").labels] == [
        ("rating", True),
        ("label", False),
    ]
    assert RECIPE.model_dump(mode="json")["label"] == "label"  # so that its data is still found


def test_a_repeated_label_is_refused_in_any_notation() -> None:
    twice = FeaturePlan.model_validate({**RECIPE.model_dump(), "label": ["label", {"name": "label"}]})
    assert "'label' is named as label and as label; a column plays one part" in twice.wrong_roles()


def leaks(*ops: AnyOp, **changed: object) -> str:
    """Return the problems of the plan above with further ops."""
    plan = FeaturePlan.model_validate({**RECIPE.model_dump(), "ops": (*RECIPE.ops, *ops), **changed})
    try:
        plan.compile(TABLES)
    except ConfigError as error:
        return error.message
    return ""


SCALED = Normalize(columns=("rating",))
LOGS = LambdaOp(expression="log(rating)", output="logs")
MEANS = JoinGroupby(columns=("movieId",), cont_cols=("rating",), stats=("count", "mean"))
RATING = {"name": "rating", "task": "regression"}


def test_a_feature_with_the_sources_of_the_label_is_refused() -> None:
    """`label` is `rating > 3`, and any function of the rating gives it away."""
    assert "'rating' leaks the label 'label': both are computed from rating of the same row" in leaks(SCALED)
    assert "'logs' leaks the label 'label'" in leaks(LOGS)
    assert "'label' leaks the label 'rating'" in leaks(label=RATING)
    found = leaks(MEANS)
    assert "'movieId_rating_mean' leaks the label 'label'" in found
    assert "movieId_count" not in found


def test_what_is_no_feature_shares_the_sources_of_the_label() -> None:
    assert leaks(SCALED, weight="rating") == leaks(LOGS, drop=["logs"]) == leaks(LOGS, known=["logs"]) == ""
    assert leaks(label=[RATING, "label"]) == leaks(label=RATING, drop=["label"]) == ""
    assert leaks(TargetEncoding(columns=("movieId",), target="label"), SCALED, drop=["rating"]) == ""


def test_a_feature_with_a_source_of_several_is_remarked() -> None:
    label = LambdaOp(expression="rating > 3 and timestamp > 9", output="both", dtype="int8")
    plan = RECIPE.model_copy(update={"label": "both", "ops": (*RECIPE.ops[:-1], label, LOGS)})
    (remark,) = plan.possible_leaks(plan.compile(TABLES))
    assert remark.startswith("'logs' and the label 'both' are both computed from rating: a leak, unless")
    assert plan.model_copy(update={"known": ("logs",)}).possible_leaks(plan.compile(TABLES)) == []


ROLE_TABLES = {
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
    assert set(named.compile(ROLE_TABLES).reads) == {"user", "item", "click", "buy", "boost", "tags", "scores"}
    assert plan().labels == ("click",)
    assert plan().model_dump(mode="json")["label"] == "click"


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
        plan(**named).compile(ROLE_TABLES)
