"""A split larger than its memory budget: the same rows, from windows, with bounded memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsys_cli.batch import Batch
from recsys_cli.errors import ConfigError, DataError
from recsys_cli.loader import Loader
from recsys_cli.loader.reading import row_groups
from recsys_cli.loader.records import Layout
from recsys_cli.loader.streaming import Streaming
from recsys_cli.workspace import PreparedData

Make = Callable[..., PreparedData]


def order_of(loader: Loader) -> np.ndarray:
    return np.concatenate([batch.features["userId"].numpy() for batch in loader])  # type: ignore[union-attr]


@pytest.mark.parametrize("batch_size", [1_000, 7_777, 60_000])
def test_streaming_hands_out_every_row_once_in_the_order_of_the_files_without_shuffle(
    streamed: Make, batch_size: int
) -> None:
    loader = Loader(streamed(), "train", batch_size=batch_size, shuffle=True, memory=1)
    order = order_of(loader)
    assert not np.array_equal(order, np.arange(len(order)))
    assert np.array_equal(np.sort(order), np.arange(loader.num_rows))
    in_order = Loader(streamed(), "train", batch_size=batch_size, memory=1)
    assert not loader.resident
    assert not in_order.resident
    assert np.array_equal(order_of(in_order), np.arange(in_order.num_rows))


def test_streaming_rows_are_whole(
    streamed: Make,
    rows_of: Callable[[list[Batch]], list[dict[str, Any]]],
    expected_row: Callable[[int], dict[str, Any]],
) -> None:
    rows = rows_of(list(Loader(streamed(layout="flat"), "train", batch_size=5_000, shuffle=True, memory=1)))
    assert all(row == expected_row(row["userId"]) for row in rows[::97])


def test_streaming_order_is_decided_by_seed_and_epoch(streamed: Make) -> None:
    data = streamed()

    def order(seed: int, epoch: int) -> bytes:
        loader = Loader(data, "train", batch_size=5_000, shuffle=True, seed=seed, memory=1)
        loader.set_epoch(epoch)
        return order_of(loader).tobytes()

    assert order(1, 2) == order(1, 2)
    assert len({order(seed, epoch) for seed in (0, 1) for epoch in (0, 1)}) == 4


def test_streaming_mixes_sorted_data(streamed: Make) -> None:
    batches = [
        batch.features["userId"].numpy()  # type: ignore[union-attr]
        for batch in Loader(streamed(), "train", batch_size=5_000, shuffle=True, memory=1)
    ]
    shares = [np.histogram(batch, bins=4, range=(0, 60_000))[0].max() / len(batch) for batch in batches]
    assert np.mean(shares) < 0.5
    assert max(shares) < 0.9


def test_streaming_window_never_exceeds_a_third_of_the_memory(streamed: Make) -> None:
    data = streamed(layout="flat")
    columns = [column for column in data.schema.columns if column.table is None]
    groups = row_groups(data, "train", columns)
    layout = Layout.of(columns, groups)
    for budget in (1 << 20, 1 << 21):
        windows = Streaming(layout, groups, budget=budget, seed=0).epoch(1)._windows
        assert sorted(g.path.name + str(g.index) for w in windows for g in w) == sorted(
            g.path.name + str(g.index) for g in groups
        )
        assert max(layout.num_bytes(window) for window in windows) <= budget // 3
        assert len(windows) < len(groups) / 2


def test_streaming_memory_stays_flat_over_epochs(streamed: Make) -> None:
    loader = Loader(streamed(), "train", batch_size=2_000, shuffle=True, memory=1)
    peaks = []
    tracemalloc.start()
    for epoch in range(4):
        loader.set_epoch(epoch)
        for step, _ in enumerate(loader):
            if epoch % 2 and step == 5:
                break
        peaks.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.reset_peak()
    tracemalloc.stop()
    assert peaks[-1] - peaks[0] < 100_000


def test_streaming_refuses_a_row_group_larger_than_a_window(numbered: Make) -> None:
    data = numbered(60_000, shards=1, group=60_000)
    with pytest.raises(ConfigError, match=r"memory=1 \(MiB\) is too little to stream .*00000\.parquet") as caught:
        Loader(data, "train", batch_size=100, memory=1)
    assert caught.value.hint is not None
    enough = int(caught.value.hint.rpartition("=")[2])
    assert len(list(Loader(data, "train", batch_size=6_000, memory=enough))) == 10


def test_streaming_finds_bad_ids_before_it_begins(numbered: Make) -> None:
    data = numbered(60_000, shards=4, group=1_500)
    path = data.shards("train")[-1]
    table = pq.read_table(path)
    pq.write_table(table.set_column(0, "userId", pa.array(range(30_000, 90_000, 4), pa.int32())), path)
    with pytest.raises(
        DataError, match=r"00003\.parquet: column 'userId' holds the id 89996, but ids range from 0 to 69999"
    ):
        Loader(data, "train", batch_size=1_000, memory=1)


def test_streaming_names_bad_data_where_it_is_met(numbered: Make) -> None:
    data = numbered(60_000, shards=4, group=1_500)
    loader = Loader(data, "train", batch_size=1_000, memory=1)
    data.shards("train")[-1].write_bytes(b"gone")
    with pytest.raises(DataError, match=r"parquet: not a readable parquet file"):
        list(loader)
    with pytest.raises(DataError, match=r"parquet: not a readable parquet file"):
        list(loader)
