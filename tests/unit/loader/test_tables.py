"""Joined tables, further labels, and weights of rows and lists in batches."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from recsys_cli.batch import Ragged, joined
from recsys_cli.errors import DataError
from recsys_cli.features.schema import Column, Kind, Role, Schema
from recsys_cli.loader import DimensionTables, Loader, check_targets
from recsys_cli.loader.reading import row_groups
from recsys_cli.loader.records import Layout, read_records
from recsys_cli.workspace import PreparedData, write_manifest

Make = Callable[..., PreparedData]


@pytest.mark.parametrize("layout", ["star", "flat"])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("ids", [[0, 2, 3, 49], [49], [0], [4, 4, 1], [0, 1, 49, 0], []])
def test_tables_join_gathers_the_rows_of_ids(numbered: Make, layout: str, dtype: torch.dtype, ids: list[int]) -> None:
    data = numbered(10, layout=layout)
    given = {"itemId": torch.tensor(ids, dtype=dtype), "userId": torch.zeros(len(ids), dtype=torch.int32)}
    joined = DimensionTables(data).join(given)
    content = pq.read_table(data.table("itemId")).to_pylist()
    assert joined["itemId"] is given["itemId"]
    assert set(joined) == {"itemId", "userId", "genres", "weights", "year"}
    assert joined["year"].tolist() == [content[item]["year"] for item in ids]  # type: ignore[union-attr]
    for name, element in (("genres", torch.int32), ("weights", torch.float32)):
        lists = joined[name]
        assert isinstance(lists, Ragged)
        assert (lists.values.dtype, lists.offsets.dtype) == (element, torch.int64)
        assert lists.values.tolist() == [value for item in ids for value in content[item][name]]
        assert lists.offsets.diff().tolist() == [len(content[item][name]) for item in ids]


def test_tables_join_keeps_what_is_given_and_refuses_an_id_beyond_the_table(numbered: Make) -> None:
    tables, year = DimensionTables(numbered(10)), torch.tensor([1.5])
    assert tables.join({"itemId": torch.tensor([7]), "year": year})["year"] is year
    assert set(tables.join({"userId": torch.tensor([7])})) == {"userId"}
    with pytest.raises(IndexError, match="out of range"):
        tables.join({"itemId": torch.tensor([50])})


def test_tables_refuse_other_rows_than_ids_other_ids_and_a_missing_file(numbered: Make) -> None:
    data = numbered(10)
    path = data.table("itemId")
    table = pq.read_table(path)
    pq.write_table(table.slice(1), path)
    with pytest.raises(DataError, match=r"itemId\.parquet: has 49 rows, but 'itemId' has 50 ids"):
        DimensionTables(data)
    pq.write_table(table.set_column(0, "genres", pa.array([[9]] * 50, pa.list_(pa.int32()))), path)
    with pytest.raises(DataError, match=r"itemId\.parquet: column 'genres' holds the id 9, but ids range from 0 to 8"):
        DimensionTables(data)
    path.unlink()
    with pytest.raises(DataError, match=r"itemId\.parquet: not a readable parquet file"):
        DimensionTables(data, keys=["itemId"])


ROWS = 30_000


def numbers(name: str, role: Role, *, dtype: str = "float32", ragged: bool = False) -> Column:
    return Column(name=name, role=role, kind=Kind.NUMERIC, dtype=dtype, ragged=ragged)  # type: ignore[arg-type]


def ids(name: str, role: Role, cardinality: int, **more: Any) -> Column:
    shared = {"kind": Kind.CATEGORICAL, "dtype": "int32", "vocabulary": name, "cardinality": cardinality}
    return Column.model_validate({"name": name, "role": role, **shared, **more})


SCHEMA = Schema(columns=(
    ids("user", Role.USER, ROWS), ids("item", Role.ITEM, 3),
    ids("tags", Role.FEATURE, 100, ragged=True, weights="scores"), numbers("scores", Role.LIST_WEIGHT, ragged=True),
    numbers("prices", Role.FEATURE, ragged=True), ids("words", Role.FEATURE, 70_000, ragged=True),
    numbers("clicked", Role.LABEL, dtype="int8"), numbers("bought", Role.LABEL),
    numbers("weight", Role.WEIGHT, dtype="int16"),
))  # fmt: skip


def a_row(number: int) -> dict[str, Any]:
    """Return row `number` as written, and as expected in a batch."""
    return {
        "user": number,
        "item": number % 3,
        "tags": [number % 100] * (number % 4),
        "scores": [number / 2 + place for place in range(number % 4)],
        "prices": [number / 4] * ((number + 1) % 3),
        "words": [number + 10_000] * (number % 2),
        "clicked": number % 2,
        "bought": (number % 8) / 8,
        "weight": number % 5,
    }


def write(folder: Path, rows: list[dict[str, Any]], *, group: int = 1_500, **changes: pa.Array) -> PreparedData:
    """Write prepared data of some rows, with some columns changed."""
    kinds = {"user": pa.int32(), "item": pa.int32(), "tags": pa.list_(pa.int32()), "scores": pa.list_(pa.float32()),
             "prices": pa.list_(pa.float32()), "words": pa.list_(pa.int32()), "clicked": pa.int8(), "bought": pa.float32(),
             "weight": pa.int16()}  # fmt: skip
    table = pa.table({name: pa.array([row[name] for row in rows], kind) for name, kind in kinds.items()})
    for name, values in changes.items():
        table = table.set_column(table.column_names.index(name), name, values)
    data = PreparedData(folder)
    data.folder.mkdir()
    for split in ("train", "valid"):
        (folder / split).mkdir()
        pq.write_table(table, folder / split / "00000.parquet", row_group_size=group)
    SCHEMA.write(folder / "schema.json")
    write_manifest(folder, "PreparedData", {"key": "by-hand", "rows": dict.fromkeys(("train", "valid"), len(rows))})
    return data


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    """Enough rows for streaming with 1 MiB."""
    return write(tmp_path_factory.mktemp("weights") / "data", [a_row(number) for number in range(ROWS)])


@pytest.mark.parametrize(("memory", "resident"), [(1, False), (4096, True)])
def test_a_batch_has_all_labels_the_weights_of_rows_and_those_of_lists(
    many: PreparedData, memory: int, resident: bool
) -> None:
    loader = Loader(many, "train", batch_size=4_000, shuffle=True, seed=2, memory=memory)
    assert loader.resident is resident
    seen = 0
    for batch in loader:
        assert set(batch.features) == {"user", "item", "tags", "prices", "words"}
        assert list(batch.labels) == ["clicked", "bought"]
        assert batch.weight is not None
        tags, prices, words = (batch.features[name] for name in ("tags", "prices", "words"))
        assert isinstance(tags, Ragged)
        assert tags.weights is not None
        assert isinstance(prices, Ragged)
        assert isinstance(words, Ragged)
        assert prices.weights is words.weights is None
        for place, user in list(enumerate(batch.features["user"].tolist()))[::59]:  # type: ignore[union-attr]
            here, there, away = (slice(*lists.offsets[place : place + 2].tolist()) for lists in (tags, prices, words))
            found = {
                "user": user, "item": int(batch.features["item"][place]),  # type: ignore[index]
                "tags": tags.values[here].tolist(), "scores": tags.weights[here].tolist(),
                "prices": prices.values[there].tolist(), "words": words.values[away].tolist(),
                "clicked": int(batch.labels["clicked"][place]), "bought": float(batch.labels["bought"][place]),
                "weight": int(batch.weight[place]),
            }  # fmt: skip
            assert found == a_row(user)
            seen += 1
    assert seen > 400


def test_weights_count_as_memory(many: PreparedData) -> None:
    plain = many.schema.model_copy(
        update={"columns": tuple(c.model_copy(update={"weights": None}) for c in many.schema.columns)}
    )
    sizes = []
    for schema in (many.schema, plain):
        columns = schema.features
        groups = row_groups(many, "train", columns)
        layout = Layout.of(columns, groups)
        assert read_records(layout, groups[:2]).num_bytes <= layout.num_bytes(groups[:2])
        sizes.append(layout.num_bytes(groups))
    elements = sum(number % 4 for number in range(ROWS))
    assert 4 * elements <= sizes[0] - sizes[1] <= 4 * (elements + ROWS)  # an empty list takes a place in the footer


def test_lists_that_differ_in_length_are_named_with_their_row(tmp_path: Path) -> None:
    rows = [a_row(number) for number in range(40)]
    rows[27]["scores"] = [1.0]
    rows[31]["scores"] = []
    data = write(tmp_path / "data", rows, group=10)
    message = r"00000\.parquet: row 7 of row group 2 has 3 elements in 'tags' and 1 in 'scores'"
    with pytest.raises(DataError, match=message) as caught:
        Loader(data, "train", batch_size=8)
    assert "apply the same ops" in str(caught.value.hint)


def test_weights_of_lists_have_to_be_finite_and_there(tmp_path: Path) -> None:
    rows = [a_row(number) for number in range(40)]
    rows[27]["scores"] = [1.0, float("nan"), 0.0]
    with pytest.raises(DataError, match=r"row group 2 has nulls or infinite numbers in 'scores'"):
        Loader(write(tmp_path / "nan", rows, group=10), "train", batch_size=8)
    rows = [a_row(number) for number in range(8)]
    texts = pa.array([["x"] * (number % 4) for number in range(8)])
    with pytest.raises(DataError, match=r"column 'scores' holds string, not numbers"):
        Loader(write(tmp_path / "text", rows, scores=texts), "train", batch_size=8)
    single = pa.array(np.ones(8, np.float32))
    with pytest.raises(DataError, match=r"column 'scores' does not hold lists"):
        Loader(write(tmp_path / "single", rows, scores=single), "train", batch_size=8)


def changed(column: str, *values: Any, kind: pa.DataType | None = None) -> dict[str, pa.Array]:
    """Put some values at the end of a column of 40 rows."""
    kept = [a_row(number)[column] for number in range(40 - len(values))]
    return {column: pa.array([*kept, *values], kind)}


def test_targets_that_are_right_pass(tmp_path: Path) -> None:
    rows = [a_row(number) for number in range(40)]
    check_targets(write(tmp_path / "a", rows, group=7))
    check_targets(write(tmp_path / "b", rows, **changed("weight", 0.5, 1e30, kind=pa.float64())))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (changed("clicked", 5, kind=pa.int8()), r"the label clicked ranges from 0 to 5 in train; it must be 0 or 1"),
        (changed("bought", -0.5, 0.5), r"the label bought ranges from -0\.5 to 0\.875 in train"),
        (changed("bought", float("nan"), None), r"2 rows of train have no label bought"),
        (changed("clicked", None, kind=pa.int8()), r"1 rows of train have no label clicked"),
        (
            changed("weight", -1, kind=pa.int16()),
            r"the weight weight ranges from -1 to 4 in train; it must be 0 or more",
        ),
        (changed("weight", float("inf")), r"ranges from 0 to inf in train; it must be 0 or more and finite"),
        (changed("weight", float("nan"), 2.0), r"1 rows of train have no weight in weight"),
        (changed("weight", None, kind=pa.int16()), r"1 rows of train have no weight in weight"),
    ],
)
def test_targets_that_would_lead_the_loss_astray_are_named(
    tmp_path: Path, change: dict[str, pa.Array], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        check_targets(write(tmp_path / "data", [a_row(number) for number in range(40)], group=7, **change))


def test_targets_of_valid_are_looked_at_too(tmp_path: Path) -> None:
    data = write(tmp_path / "data", [a_row(number) for number in range(40)])
    path = data.shards("valid")[0]
    table = pq.read_table(path)
    pq.write_table(table.set_column(table.column_names.index("weight"), "weight", pa.array([-2] * 40)), path)
    with pytest.raises(DataError, match=r"the weight weight ranges from -2 to -2 in valid"):
        check_targets(data)


def test_lists_are_joined_with_their_weights() -> None:
    one = Ragged(torch.tensor([1, 2]), torch.tensor([0, 0, 2]), torch.tensor([0.1, 0.2]))
    two = Ragged(torch.tensor([3]), torch.tensor([0, 1, 1]), torch.tensor([0.3]))
    both = joined([one, two])
    assert isinstance(both, Ragged)
    assert both.weights is not None
    found = [both.weights[a:b].tolist() for a, b in pairwise(both.offsets.tolist())]
    assert found == [[], pytest.approx([0.1, 0.2]), pytest.approx([0.3]), []]
