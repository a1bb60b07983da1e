"""Models that do not fit the columns, and joined keys of several types."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("model.ranker={name: sasrec}", "model.ranker.name is sasrec, which is no ranking model"),
        ("model.rerank=[{name: at-most, feature: colour, number: 4}]", "colour is no categorical feature of item_id"),
    ],
)
def test_a_model_that_does_not_fit_the_columns_is_an_error(recsys, prepared, override, problem):
    answer = recsys("train", "ratings.yaml", "model.name=two-stage", override)
    assert answer.code == 2
    assert problem in answer.err


def joining(table: pa.Table, ops: str, *, item: str = "i{}") -> str:
    """Write interactions, and a table of their 20 items as text or numbers; return a config that joins them."""
    rows = [f"u{row % 30},{item.format(row * 7 % 20)},{1 + row % 5}" for row in range(600)]
    Path("plays.csv").write_text("\n".join(["user,item,rating", *rows]))
    pq.write_table(table, "items.parquet")
    Path("joined.yaml").write_text(f"""
dataset: {{name: files, interactions: {{files: plays.csv, types: {{item: string}}}}, tables: {{items: items.parquet}}}}
split: {{method: random, valid: 0.1, test: 0.1}}
features:
  user: user
  item: item
  label: {{name: rating, task: regression}}
  ops:
{ops}
model: {{name: mlp}}
""")
    return "joined.yaml"


def test_a_model_with_vectors_is_valid(recsys):
    """The length of vectors is unknown before ValueCount is fitted."""
    items = pa.table({"item": [f"i{item}" for item in range(20)], "vector": [[float(item), 1.0] for item in range(20)]})
    ops = "    - {op: JoinExternal, table: items, on: item, columns: [vector]}\n    - {op: Categorify, columns: [user, item]}"
    answer = recsys("run", joining(items, ops))
    assert answer.code == 2
    assert "add {op: ValueCount, columns: [vector]}" in answer.err
    counted = joining(items, f"{ops}\n    - {{op: ValueCount, columns: [vector]}}")
    assert recsys("run", counted, "train.epochs=1").code == 0


def test_keys_of_several_types_match_as_in_the_preparation(recsys):
    items = pa.table({"item": range(20), "color": ["red", "blue"] * 10})
    ops = "    - {op: JoinExternal, table: items, on: item, columns: [color]}\n    - {op: Categorify, columns: [user, item, color]}"
    answer = recsys("--json", "validate", joining(items, ops, item="{}"))
    assert answer.code == 0, answer.err
    assert answer.json["data"]["matched"] == {"items": 1.0}
