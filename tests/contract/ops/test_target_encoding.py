"""TargetEncoding: known answers, no way from a row's own target into its encoding, and none needed for new rows."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_cli.errors import ConfigError
from recsys_cli.etl.fit import row_numbers
from recsys_cli.ops import Categorify, JoinExternal, JoinGroupby, LambdaOp, TargetEncoding
from tests.engines import (
    LAYOUTS,
    NAN,
    PARTICIPANTS,
    Answer,
    answer,
    assert_close,
    engine_of,
    every_participant,
    interactions,
    needs_all,
    plan,
)
from tests.strategies import Case

IDS = Categorify(columns=("user", "item"))
TRAIN = interactions({
    "user": ["ann", "bob", "ann", "zoë", "bob", None, "ann", None, "bob", "ann"],
    "item": [10, 20, 20, 30, 99, 10, 10, 20, 10, 10],
    "day": ["mo", "tu", "mo", None, "tu", "mo", "mo", "mo", "tu", "tu"],
    "rating": [5.0, 1.0, 3.5, None, NAN, 4.0, 2.0, 1.0, 3.0, 4.5],
    "row": range(10),
})  # fmt: skip
VALID = interactions({
    "user": ["bob", "new", None, "ann"],
    "item": [40, 10, 20, 10],
    "day": ["tu", "mo", "we", "mo"],
    "rating": [None, 9.0, 2.0, 1.0],
    "row": [10, 11, 12, 13],
})  # fmt: skip
ITEMS = pa.table({"item": [10, 20, 30, 99], "year": [1999, 1999, None, 2001], "price": [1.0, 2.0, 3.0, None]})
MEAN = (5 + 1 + 3.5 + 4 + 2 + 1 + 3 + 4.5) / 8


def case(
    *ops: Any, train: pa.Table = TRAIN, valid: pa.Table = VALID, ids: Any = IDS, label: str | tuple[str, ...] = "rating"
) -> Case:
    """Return a case in which every row keeps its number, as a feature."""
    row = LambdaOp(expression="row", output="row", dtype="int64")
    return Case({"train": train, "valid": valid}, {"items": ITEMS}, plan(*ops, ids, row, label=label))


def by_hand(made: Answer, op: TargetEncoding, columns: Sequence[str], train: pa.Table = TRAIN) -> dict[int, float]:
    """Return what each row of train has to get, by its number: the smoothed mean of its group's rows in other folds."""
    order = [(table.column("row").to_pylist(), shard) for (layout, split, shard), table in sorted(made.shards.items())
             if (layout, split) == ("star", "train")]  # fmt: skip
    fold = {row: int(f) for rows, shard in order
            for row, f in zip(rows, op.folds(row_numbers(shard, len(rows)).to_numpy()), strict=True)}  # fmt: skip
    rows = train.to_pylist()
    known = [row for row in rows if row["rating"] is not None and row["rating"] == row["rating"]]
    mean = sum(row["rating"] for row in known) / len(known)
    found = {}
    for row in rows:
        others = [other["rating"] for other in known
                  if fold[other["row"]] != fold[row["row"]] and all(other[c] == row[c] for c in columns)]  # fmt: skip
        weight = len(others) + op.p_smooth
        found[row["row"]] = (sum(others) + op.p_smooth * mean) / weight if weight else mean
    return found


def encoded(made: Answer, name: str, layout: str = "star") -> dict[int, float]:
    return dict(zip(made.column("row", layout=layout), made.column(name, layout=layout), strict=True))


BY_USER = TargetEncoding(columns=("user", ("user", "day")), target="rating", p_smooth=2)
BY_ITEM = TargetEncoding(columns=("item",), target=("rating", "like"), kfold=2, p_smooth=0)
BY_YEAR = TargetEncoding(columns=("year",), target="rating", kfold=5, p_smooth=0)
CASE = case(
    JoinExternal(table="items", on="item", columns=("year",)),
    LambdaOp(expression="rating > 3", output="like", dtype="int8"),
    BY_USER,
    JoinGroupby(columns=("day",), cont_cols=("TE_user_rating",), stats=("mean",)),
    BY_ITEM,
    TargetEncoding(columns=("day",), target="rating", p_smooth=2, target_mean=0),
    Categorify(columns=("user", "item", "year")),
    BY_YEAR,
    ids=LambdaOp(expression="1", output="one"),
    label=("rating", "like"),
)


@cache
def known(name: str) -> Answer:
    """Return the engine's answer to the case above."""
    with tempfile.TemporaryDirectory() as folder:
        return answer(name, CASE, Path(folder))


@every_participant
def test_held_out_rows_get_the_smoothed_mean_of_all_of_train(name: str) -> None:
    bob, unseen, null, ann = known(name).column("TE_user_rating", "valid")
    assert bob == pytest.approx((1 + 3 + 2 * MEAN) / 4)
    assert unseen == pytest.approx(MEAN)
    assert null == pytest.approx((4 + 1 + 2 * MEAN) / 4)
    assert ann == pytest.approx((5 + 3.5 + 2 + 4.5 + 2 * MEAN) / 6)
    assert known(name).column("TE_user_day_rating", "valid")[3] == pytest.approx((5 + 3.5 + 2 + 2 * MEAN) / 5)
    assert known(name).shards["star", "valid", 0].schema.field("TE_user_rating").type == pa.float32()


@every_participant
@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_of_train_get_the_mean_of_the_other_folds(name: str, layout: str) -> None:
    made = known(name)
    assert len([key for key in made.shards if key[:2] == (layout, "train")]) > 1
    assert encoded(made, "TE_user_rating", layout) == pytest.approx(by_hand(made, BY_USER, ["user"]))
    assert encoded(made, "TE_user_day_rating", layout) == pytest.approx(by_hand(made, BY_USER, ["user", "day"]))


@every_participant
def test_without_smoothing_a_group_is_its_mean_and_one_of_nothing_the_overall_mean(name: str) -> None:
    made = known(name)
    valid = made.column("TE_item_rating", "valid")
    assert valid == pytest.approx([MEAN, 18.5 / 5, 5.5 / 3, 18.5 / 5])
    assert encoded(made, "TE_item_rating") == pytest.approx(by_hand(made, BY_ITEM, ["item"]))
    assert encoded(made, "TE_item_rating")[3] == pytest.approx(MEAN)  # the only row of item 30, without a target


@every_participant
def test_several_targets_are_counted_each_by_itself(name: str) -> None:
    assert known(name).column("TE_item_like", "valid") == pytest.approx([0.4, 0.6, 1 / 3, 0.6])


@every_participant
def test_target_mean_takes_the_place_of_that_of_train(name: str) -> None:
    assert known(name).column("TE_day_rating", "valid") == pytest.approx([8.5 / 5, 15.5 / 7, 0, 15.5 / 7])


@every_participant
def test_a_column_of_a_joined_table_comes_to_the_interactions(name: str) -> None:
    made = known(name)
    assert made.fitted.schema("star")["TE_year_rating"].table is None
    for layout in LAYOUTS:
        # 40 is no item of train, so its year is null, as that of item 30, whose one row has no target.
        assert made.column("TE_year_rating", "valid", layout=layout) == pytest.approx([MEAN, 3, 3, 3])
    years = {10: 1999, 20: 1999, 30: None, 99: 2001}
    joined = TRAIN.append_column("year", pa.array([years[item] for item in TRAIN["item"].to_pylist()]))
    assert encoded(made, "TE_year_rating") == pytest.approx(by_hand(made, BY_YEAR, ["year"], joined))


@every_participant
def test_what_is_learnt_of_encodings_is_learnt_of_those_that_are_written(name: str) -> None:
    written = encoded(known(name), "TE_user_rating")
    monday = [written[row] for row, day in enumerate(TRAIN["day"].to_pylist()) if day == "mo"]
    assert known(name).column("day_TE_user_rating_mean", "valid")[1] == pytest.approx(np.mean(monday))


@every_participant
def test_new_rows_need_no_target(name: str, tmp_path: Path) -> None:
    made = known(name)
    engine = engine_of(name, tmp_path)
    steps = [step for step in made.fitted.program.transforms(None) if step.op == BY_USER]
    rows = engine.apply(steps, made.fitted, VALID.select(["user", "day"]))
    assert rows.column("TE_user_rating").to_pylist() == pytest.approx(made.column("TE_user_rating", "valid"))


@every_participant
def test_constant_targets_and_one_row_and_none(name: str, tmp_path: Path) -> None:
    op = TargetEncoding(columns=("user",), target="rating")
    constant = TRAIN.set_column(3, "rating", pa.array([0.1] * 10))
    made = answer(name, case(op, train=constant), tmp_path / "constant")
    assert made.column("TE_user_rating") == pytest.approx([0.1] * 10)
    made = answer(name, case(op, train=TRAIN.slice(0, 1)), tmp_path / "one")
    assert made.column("TE_user_rating") == made.column("TE_user_rating", "valid")[:1] == [5.0]
    made = answer(name, case(op, train=TRAIN.slice(3, 1)), tmp_path / "null")
    assert repr(made.column("TE_user_rating")) == repr([NAN])
    made = answer(name, case(op, train=TRAIN.slice(0, 0)), tmp_path / "none")
    assert repr(made.column("TE_user_rating", "valid")) == repr([NAN] * 4)


@every_participant
@pytest.mark.parametrize("smooth", [0, 20])
def test_a_group_of_one_row_says_nothing_of_its_target(name: str, smooth: float, tmp_path: Path) -> None:
    ratings = np.random.default_rng(3).integers(0, 2, 40).astype(float)
    train = interactions({"user": range(40), "item": [1] * 40, "rating": ratings, "row": range(40)})
    op = TargetEncoding(columns=(("user", "item"),), target="rating", p_smooth=smooth)
    made = answer(name, case(op, train=train, valid=train.slice(0, 0)), tmp_path)
    assert len(set(made.column("TE_user_item_rating"))) == 1


@every_participant
def test_a_row_does_not_see_its_own_target(name: str, tmp_path: Path) -> None:
    op = TargetEncoding(columns=("item",), target="rating", p_smooth=1, target_mean=3)
    before = answer(name, case(op), tmp_path / "before")
    changed = TRAIN.set_column(3, "rating", pa.array([1e6, *TRAIN["rating"].to_pylist()[1:]]))
    after = answer(name, case(op, train=changed), tmp_path / "after")
    assert encoded(after, "TE_item_rating")[0] == encoded(before, "TE_item_rating")[0]
    assert encoded(after, "TE_item_rating") != encoded(before, "TE_item_rating")


@every_participant
def test_one_fold_is_the_mean_with_the_own_target(name: str, tmp_path: Path) -> None:
    made = answer(name, case(TargetEncoding(columns=("user",), target="rating", kfold=1, p_smooth=0)), tmp_path)
    assert encoded(made, "TE_user_rating")[1] == pytest.approx(2.0)


def test_folds_are_a_hash_of_seed_and_row() -> None:
    op = TargetEncoding(columns=("user",), target="rating", kfold=5)
    rows = row_numbers(3, 10_000).to_numpy()
    assert np.bincount(op.folds(rows), minlength=5).tolist() == pytest.approx([2000] * 5, rel=0.05)
    assert (op.folds(rows)[17:40] == op.folds(rows[17:40])).all()
    other = TargetEncoding(columns=("user",), target="rating", kfold=5, fold_seed=43)
    assert (op.folds(rows) != other.folds(rows)).mean() == pytest.approx(0.8, abs=0.05)


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (TargetEncoding(columns=("tags",), target="rating"), "TargetEncoding: 'tags' holds a list in each row"),
        (TargetEncoding(columns=("user",), target="day"), "TargetEncoding: 'day' holds string; numbers are needed"),
        (
            TargetEncoding(columns=("user",), target="raing"),
            r"no column 'raing' in the interactions \(did you mean rating",
        ),
        (TargetEncoding(columns=("user", "user"), target="rating"), "TargetEncoding: the outputs TE_user_rating"),
        (TargetEncoding(columns=(("user", "user"),), target="rating"), "is no group of columns"),
    ],
)
def test_what_cannot_be_encoded_is_said_before_any_work(op: TargetEncoding, message: str) -> None:
    schema = TRAIN.append_column("tags", pa.array([["x"]] * 10)).schema
    with pytest.raises(ConfigError, match=message):
        plan(op, IDS).compile({"interactions": schema})


KEYS = st.sampled_from(["", "a", "b", "é", None])
REALS = st.sampled_from([0.0, -0.0, 1.0, 2.5, -3.0, 1e6, NAN, None])


@st.composite
def random_cases(draw: st.DrawFn) -> Case:
    real = st.sampled_from([0.0, -0.0, 1.5, NAN, None])

    def rows(size: int) -> pa.Table:
        def column(values: st.SearchStrategy[Any], kind: pa.DataType) -> pa.Array:
            return pa.array(draw(st.lists(values, min_size=size, max_size=size)), kind)

        return pa.table({
            "user": column(KEYS, pa.string()), "item": column(st.sampled_from([1, 2, 2**53 + 1, None]), pa.int64()),
            "day": column(real, pa.float64()), "rating": column(REALS, pa.float64()),
            "like": column(st.booleans() | st.none(), pa.bool_()), "row": pa.array(range(size), pa.int64()),
        })  # fmt: skip

    op = TargetEncoding(
        columns=draw(st.sampled_from([("user",), ("day", ("user", "item")), (("item", "day"), "item")])),
        target=draw(st.sampled_from(["rating", ("rating", "like")])),
        kfold=draw(st.integers(1, 4)), p_smooth=draw(st.sampled_from([0.0, 0.5, 20.0])),
    )  # fmt: skip
    first = draw(st.booleans())
    valid = rows(draw(st.integers(0, 4)))
    ops = (op, IDS) if first else (IDS, op)
    return Case({"train": rows(draw(st.integers(1, 12))), "valid": valid}, {}, plan(*ops))


@needs_all
@settings(max_examples=8, derandomize=True)
@given(random_cases())
def test_engines_agree(drawn: Case) -> None:
    made = []
    for name in PARTICIPANTS:
        with tempfile.TemporaryDirectory() as folder:
            made.append(answer(name, drawn, Path(folder)))
    for other in made[1:]:
        assert_close(made[0], other)
