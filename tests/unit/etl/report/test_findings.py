"""Warnings of the data report before training: invalid numbers, and lost labels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsys_cli.config import RunConfig
from recsys_cli.errors import DataError
from recsys_cli.etl.report import Facts
from recsys_cli.stages.etl import etl
from recsys_cli.workspace import Workspace
from tests.engines import every_engine

IDS = {"op": "Categorify", "columns": ["user", "item"]}
ROWS = 8
Prepare = Callable[..., Facts]


@pytest.fixture
def prepare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Prepare:
    """Prepare eight rows per split, with columns by split."""
    monkeypatch.chdir(tmp_path)

    def run(engine: str, columns: dict[str, dict[str, pa.Array]], *ops: dict[str, Any], label: Any = "label") -> Facts:
        splits = ("train", "valid", "test")
        for split in splits:
            ids = {"user": pa.array([n % 3 for n in range(ROWS)]), "item": pa.array([n % 4 for n in range(ROWS)])}
            given = {"label": {}, **columns}
            filled = {name: by.get(split, pa.array([n % 2 for n in range(ROWS)])) for name, by in given.items()}
            kinds = {name: next(iter(by.values())).type for name, by in columns.items() if by}
            table = pa.table({**ids, **{name: v.cast(kinds.get(name, v.type)) for name, v in filled.items()}})
            pq.write_table(table, f"{split}.parquet")
        config = {
            "dataset": {"name": "files", "interactions": "train.parquet"},
            "split": {"method": "files", **{split: f"{split}.parquet" for split in splits}},
            "features": {"user": "user", "item": "item", "label": label, "ops": [*ops, IDS]},
            "etl": {"engine": engine},
        }  # fmt: skip
        return Facts.read(etl(RunConfig.model_validate(config), Workspace(tmp_path / "workspace")).artifact.facts)

    return run


def warnings(facts: Facts) -> list[str]:
    return [finding.text for finding in facts.findings if finding.level == "warning"]


@every_engine
def test_null_and_infinite_numbers_are_warnings(prepare: Prepare, name: str) -> None:
    nan, inf = float("nan"), float("inf")
    age = {
        "train": pa.array([1.0, 2, 3, 4, 5, 6, 7, 8]),
        "valid": pa.array([1.0, nan, None, 4, inf, -inf, inf, 8]),
        "test": pa.array([None, None, None, nan, 5, 6, 7, 8.0]),
    }
    facts = prepare(name, {"age": age, "fine": {}}, {"op": "Normalize", "columns": ["age", "fine"]})

    assert facts.continuous == ("age", "fine")
    counts = {split: (found.null, found.infinite, found.values) for split, found in facts.missing["age"].items()}
    assert counts == {"train": (0, 0, 8), "valid": (2, 3, 8), "test": (4, 0, 8)}
    assert [text for text in warnings(facts) if text.startswith(("age", "fine"))] == [
        "age: 2 of 8 (25.0 %) values of valid are null; add FillMissing before Normalize",
        "age: 3 of 8 (37.5 %) values of valid are infinite; add Clip before Normalize",
        "age: 4 of 8 (50.0 %) values of test are null; add FillMissing before Normalize",
    ]
    clip = {"op": "Clip", "columns": ["age"], "max_value": 9, "min_value": 0}
    mended = prepare(name, {"age": age}, {"op": "FillMissing", "columns": ["age"]}, clip)
    assert not [text for text in warnings(mended) if text.startswith("age")]


@every_engine
@pytest.mark.parametrize(
    ("values", "op", "message"),
    [
        ([1, 2, 300, -400, 5, 6, 7, 8], {"dtype": "int8"}, r"the label label: 2 of 8 rows of test overflow int8"),
        ([1, 2, 300, 4, 5, 6, 7, 128], {"dtype": "int8"}, r"2 of 8 rows of test overflow int8"),
        ([1, 2, 3, 4, 5, 6, -129, 127], {"dtype": "int8"}, r"1 of 8 rows of test overflow int8"),
        ([1, 2, 3, 4, 5, 6, 40_000, 8], {"dtype": "int16"}, r"1 of 8 rows of test overflow int16"),
    ],
)  # fmt: skip
def test_label_overflow_is_refused(
    prepare: Prepare, name: str, values: list[int], op: dict[str, Any], message: str
) -> None:
    label = {"name": "label", "task": "regression"}
    made = {"op": "LambdaOp", "expression": "stars * 1", "output": "label", **op}
    stars = {"train": pa.array(range(8)), "test": pa.array(values)}

    with pytest.raises(DataError, match=message) as found:
        prepare(name, {"stars": stars}, made, label=label)
    assert "dtype: float32" in str(found.value.hint)
    with pytest.raises(DataError, match=r"the label label: \d+ rows of one batch overflow int"):
        prepare(name, {"stars": stars}, made, {"op": "Filter", "expression": "label > -1000000"}, label=label)


@every_engine
def test_held_out_label_overflow_of_the_reduced_type_is_refused(prepare: Prepare, name: str) -> None:
    label = {"name": "label", "task": "regression"}
    values = {"train": pa.array(range(8)), "test": pa.array([1, 2, 3, 4, 5, 6, 7, 1000])}

    with pytest.raises(DataError, match=r"the label label: 1 of 8 rows of test overflow int8"):
        prepare(name, {"label": values}, {"op": "ReduceDtypeSize", "columns": ["label"]}, label=label)


@every_engine
def test_null_labels_written_as_zero_are_a_warning(prepare: Prepare, name: str) -> None:
    stars = {"train": pa.array([1.0, None, 5, float("nan"), 5, 1, 2, 4]), "test": pa.array([1.0, 2, 5, 4, 3, 2, 1, 5])}
    made = {"op": "LambdaOp", "expression": "stars > 3", "output": "label", "dtype": "int8"}
    facts = prepare(name, {"stars": stars}, made)

    assert (facts.splits["train"].label.zeroed, facts.splits["test"].label.zeroed) == (2, 0)
    assert facts.missing["label"]["train"].null == 2
    assert "2 of 8 (25.0 %) rows of train have no label, and count as 0: drop them with Dropna" in warnings(facts)
    dropped = prepare(name, {"stars": stars}, {"op": "Dropna", "columns": ["stars"]}, made)
    assert not [text for text in warnings(dropped) if "no label" in text]


@every_engine
def test_labels_at_the_ends_of_their_type_are_kept(prepare: Prepare, name: str) -> None:
    label = {"name": "label", "task": "regression"}
    values = {"train": pa.array([-128, 127, 0, 1, 2, 3, 4, 5])}
    made = {"op": "LambdaOp", "expression": "stars * 1", "output": "label", "dtype": "int8"}

    train = prepare(name, {"stars": values}, made, label=label).splits["train"].label
    assert (train.low, train.high, train.null) == (-128, 127, 0)
    ends = {"train": pa.array([-(2**63), 2**63 - 1, 0, 1, 2, 3, 4, 5])}
    wide = prepare(name, {"stars": ends}, {**made, "dtype": "int64"}, label=label).splits["train"].label
    assert (wide.low, wide.zeroed) == (-(2.0**63), 0)
