"""The hand-written prepared data is what the readers expect."""

from __future__ import annotations

import pyarrow.parquet as pq


def test_prepared_fixture_is_whole(make_prepared) -> None:
    data = make_prepared(rows=101, shards=3)

    assert data.exists
    assert data.schema.names == ("userId", "movieId", "label", "timestamp", "genres")
    assert data.schema["genres"].ragged
    assert data.schema.tables == ("movieId",)
    assert sum(pq.read_metadata(path).num_rows for path in data.shards("train")) == data.rows("train") == 101
    assert pq.read_table(data.table("movieId")).num_rows == data.schema["movieId"].cardinality
