"""The features of an id, looked up for a batch of ids."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from recsys_cli.batch import Ragged
from recsys_cli.errors import DataError
from recsys_cli.loader import DimensionTables
from recsys_cli.workspace import PreparedData

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


def test_tables_join_replaces_nothing_that_is_given(numbered: Make) -> None:
    year = torch.tensor([1.5])
    joined = DimensionTables(numbered(10)).join({"itemId": torch.tensor([7]), "year": year})
    assert joined["year"] is year


def test_tables_join_leaves_features_without_a_key_alone(numbered: Make) -> None:
    assert set(DimensionTables(numbered(10)).join({"userId": torch.tensor([7])})) == {"userId"}


def test_tables_join_refuses_an_id_beyond_the_table(numbered: Make) -> None:
    with pytest.raises(IndexError, match="out of range"):
        DimensionTables(numbered(10)).join({"itemId": torch.tensor([50])})


def test_tables_refuse_a_table_with_other_rows_than_ids(numbered: Make) -> None:
    data = numbered(10)
    pq.write_table(pq.read_table(data.table("itemId")).slice(1), data.table("itemId"))
    with pytest.raises(DataError, match=r"itemId\.parquet: has 49 rows, but 'itemId' has 50 ids"):
        DimensionTables(data)


def test_tables_refuse_ids_beyond_the_cardinality(numbered: Make) -> None:
    data = numbered(10)
    table = pq.read_table(data.table("itemId"))
    pq.write_table(table.set_column(0, "genres", pa.array([[9]] * 50, pa.list_(pa.int32()))), data.table("itemId"))
    with pytest.raises(DataError, match=r"itemId\.parquet: column 'genres' holds the id 9, but ids range from 0 to 8"):
        DimensionTables(data)


def test_tables_refuse_a_missing_table(numbered: Make) -> None:
    data = numbered(10)
    data.table("itemId").unlink()
    with pytest.raises(DataError, match=r"itemId\.parquet: not a readable parquet file"):
        DimensionTables(data, keys=["itemId"])
