"""What is known of the items that lists show."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recsys_cli.evaluation.beyond_accuracy import catalog_of
from recsys_cli.loader import DimensionTables
from recsys_cli.loader.interactions import read_interactions
from recsys_cli.metrics import Recommended
from recsys_cli.metrics.diversity import diversity


def test_a_feature_that_an_item_has_twice_is_one_feature(make_prepared) -> None:
    """Two items with a genre of their own share nothing, whether or not one of them is listed with its genre twice."""
    data = make_prepared(items=4)
    genres = [[]] * 3 + [[3], [4, 4], [4, 3, 3], [3]]
    pq.write_table(pa.table({"genres": pa.array(genres, pa.list_(pa.int32()))}), data.table("movieId"))
    candidates = np.array([3, 4, 5, 6])

    catalog = catalog_of(candidates, read_interactions(data, "train"), DimensionTables(data), data.schema)

    assert np.diff(catalog.offsets).tolist() == [1, 1, 2, 1]
    lists = np.array([[0, 1], [0, 3], [1, 2]], dtype=np.int32)
    shown = Recommended(np.zeros((3, 2), bool), np.ones(3, np.int64), lists, lists.astype(np.int64), catalog)
    assert diversity(shown, 2).round(6).tolist() == [1.0, 0.0, round(1 - 1 / 2**0.5, 6)]
