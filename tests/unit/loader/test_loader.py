"""Loader: every row once, in an order given by (seed, epoch), and resumable."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from recsys_cli.batch import Batch, Ragged
from recsys_cli.errors import ConfigError, DataError
from recsys_cli.loader import Loader
from recsys_cli.loader.recent import RecentRows, read_times
from recsys_cli.workspace import PreparedData

Make = Callable[..., PreparedData]
Rows = Callable[[list[Batch]], list[dict[str, Any]]]
Expected = Callable[[int], dict[str, Any]]


def users(loader: Loader) -> list[int]:
    """Return the user ids, the row numbers, in order."""
    return [user for batch in loader for user in batch.features["userId"].tolist()]  # type: ignore[union-attr]


def same(one: list[Batch], two: list[Batch]) -> bool:
    """Compare two lists of batches bit for bit."""

    def flat(batch: Batch) -> list[torch.Tensor]:
        features = {**batch.features, **batch.labels}
        parts = [features[name] for name in sorted(features)]
        return [x for part in parts for x in ((part.values, part.offsets) if isinstance(part, Ragged) else (part,))]

    pairs = [(a, b) for x, y in zip(one, two, strict=True) for a, b in zip(flat(x), flat(y), strict=True)]
    return all(a.dtype == b.dtype and torch.equal(a, b) for a, b in pairs)


def no_threads_left() -> bool:
    return not [thread for thread in threading.enumerate() if thread.name.startswith("recsys-loader")]


@pytest.mark.parametrize("layout", ["star", "flat"])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize(("rows", "shards", "batch_size"), [(501, 3, 64), (1, 1, 8), (30, 2, 100), (12, 5, 1)])
def test_loader_hands_out_every_row_whole_and_once(
    numbered: Make,
    rows_of: Rows,
    expected_row: Expected,
    layout: str,
    shuffle: bool,
    rows: int,
    shards: int,
    batch_size: int,
) -> None:
    loader = Loader(numbered(rows, shards=shards, layout=layout), "train", batch_size=batch_size, shuffle=shuffle)
    batches = list(loader)
    found = rows_of(batches)
    assert len(batches) == len(loader)
    assert loader.num_rows == rows
    order = [row["userId"] for row in found]
    assert order == list(range(rows)) if not shuffle or rows == 1 else order != list(range(rows))
    assert sorted(found, key=lambda row: row["userId"]) == [expected_row(number) for number in range(rows)]


@pytest.mark.parametrize("memory", [1, 4096])
def test_loader_layouts_give_the_same_batches(numbered: Make, memory: int) -> None:
    star, flat = (
        Loader(numbered(900, layout=layout), "train", batch_size=128, shuffle=True, seed=3, memory=memory)
        for layout in ("star", "flat")
    )
    assert same(list(star), list(flat))


def test_loader_types_are_those_of_the_contract(numbered: Make) -> None:
    batch = next(iter(Loader(numbered(20), "train", batch_size=8)))
    types = {
        name: (feature.values.dtype, feature.offsets.dtype, feature.offsets.numel())
        if isinstance(feature, Ragged)
        else (feature.dtype, tuple(feature.shape), feature.is_contiguous())
        for name, feature in {**batch.features, **batch.labels}.items()
    }
    ids, number = (torch.int32, (8,), True), (torch.float32, (8,), True)
    assert types == {
        "userId": ids, "itemId": ids, "year": number, "price": number, "count": number, "label": number,
        "genres": (torch.int32, torch.int64, 9),
        "weights": (torch.float32, torch.int64, 9),
        "session": (torch.int32, torch.int64, 9),
    }  # fmt: skip
    assert set(batch.labels) == {"label"}


def test_loader_order_is_decided_by_seed_and_epoch(numbered: Make) -> None:
    data = numbered(400)

    def order(seed: int, epoch: int) -> list[int]:
        loader = Loader(data, "train", batch_size=32, shuffle=True, seed=seed)
        loader.set_epoch(epoch)
        return users(loader)

    assert order(1, 2) == order(1, 2)
    assert len({tuple(order(seed, epoch)) for seed in (0, 1) for epoch in (0, 1, 2)}) == 6


def test_loader_batches_do_not_share_memory(numbered: Make) -> None:
    batches = list(Loader(numbered(64), "train", batch_size=16))
    before = [batch.features["userId"].clone() for batch in batches]  # type: ignore[union-attr]
    for batch in batches[1:]:
        batch.features["userId"].zero_()  # type: ignore[union-attr]
    assert torch.equal(batches[0].features["userId"], before[0])  # type: ignore[arg-type]
    assert next(iter(Loader(numbered(65), "train", batch_size=16))).num_rows == 16


def test_loader_of_a_split_without_rows_is_empty_and_the_last_batch_never_a_single_row(numbered: Make) -> None:
    loader = Loader(numbered(10), "valid", batch_size=4)
    assert (len(loader), loader.num_rows, list(loader)) == (0, 0, [])
    assert [batch.num_rows for batch in Loader(numbered(33), "train", batch_size=16)] == [16, 17]


@pytest.mark.parametrize("memory", [1, 4096])
def test_loader_goes_on_where_the_state_says(streamed: Make, memory: int) -> None:
    data = streamed()
    whole = Loader(data, "train", batch_size=4_000, shuffle=True, seed=5, memory=memory)
    whole.set_epoch(3)
    batches = list(whole)
    for step in (0, 1, len(whole) // 2, len(whole) - 1, len(whole)):
        stopped = Loader(data, "train", batch_size=4_000, shuffle=True, seed=5, memory=memory)
        stopped.set_epoch(3)
        for number, _ in enumerate(stopped, 1):
            if number >= step:
                break
        state = stopped.state_dict() if step else {"epoch": 3, "step": 0}
        assert json.loads(json.dumps(state)) == {"epoch": 3, "step": step}
        resumed = Loader(data, "train", batch_size=4_000, shuffle=True, seed=5, memory=memory)
        resumed.load_state_dict(state)
        assert resumed.state_dict() == state
        resumed.set_epoch(3)
        assert same(list(resumed), batches[step:])
        assert resumed.state_dict() == {"epoch": 3, "step": len(whole)}


def test_loader_begins_anew_after_an_early_break(numbered: Make) -> None:
    loader = Loader(numbered(200), "train", batch_size=16, shuffle=True)
    whole = users(loader)
    for number, _ in enumerate(loader):
        if number == 3:
            break
    assert loader.state_dict() == {"epoch": 0, "step": 4}
    assert users(loader) == whole
    loader.load_state_dict({"epoch": 0, "step": 2})
    assert users(loader) == whole[32:]
    assert users(loader) == whole


def test_loader_set_epoch_begins_another_epoch_at_its_start(numbered: Make) -> None:
    loader = Loader(numbered(200), "train", batch_size=16, shuffle=True)
    loader.load_state_dict({"epoch": 1, "step": 5})
    loader.set_epoch(2)
    assert loader.state_dict() == {"epoch": 2, "step": 0}
    assert len(list(loader)) == len(loader)


@pytest.mark.parametrize("memory", [1, 4096])
def test_loader_leaves_no_thread_behind(streamed: Make, memory: int) -> None:
    loader = Loader(streamed(), "train", batch_size=1_000, shuffle=True, memory=memory)
    for _ in loader:
        assert not no_threads_left()
        break
    assert no_threads_left()
    list(loader)
    assert no_threads_left()
    unused = iter(loader)
    del unused
    assert no_threads_left()


@pytest.mark.parametrize("memory", [1, 4096])
@pytest.mark.parametrize("world_size", [2, 3])
def test_loader_ranks_share_each_step_of_one_process(streamed: Make, memory: int, world_size: int) -> None:
    data = streamed()
    how: dict[str, Any] = {"shuffle": True, "seed": 1, "memory": memory}
    one = [batch.features["userId"].tolist() for batch in Loader(data, "train", batch_size=6_000, **how)]  # type: ignore[union-attr]
    ranks = [
        Loader(data, "train", batch_size=6_000, rank=rank, world_size=world_size, **how) for rank in range(world_size)
    ]
    assert {len(rank) for rank in ranks} == {len(one)}
    for step, pieces in enumerate(zip(*ranks, strict=True)):
        assert [user for piece in pieces for user in piece.features["userId"].tolist()] == one[step]  # type: ignore[union-attr]


def test_loader_gives_ranks_without_rows_empty_batches(numbered: Make) -> None:
    data = numbered(2, shards=1)
    ranks = [Loader(data, "train", batch_size=12, rank=rank, world_size=3) for rank in range(3)]
    assert [[batch.num_rows for batch in rank] for rank in ranks] == [[0], [1], [1]]


def test_loader_refuses_a_split_that_is_not_there(numbered: Make) -> None:
    data = numbered(10)
    with pytest.raises(DataError, match=r"unknown split 'test'; the splits are train, valid") as caught:
        Loader(data, "test", batch_size=4)
    assert caught.value.hint == "recsys etl --force"
    with pytest.raises(DataError, match=r"unknown split 'vald'; the splits are train, valid") as caught:
        Loader(data, "vald", batch_size=4)
    assert caught.value.hint == "name one of them (did you mean valid?)"


def rewrite(data: PreparedData, change: Callable[[pa.Table], pa.Table]) -> None:
    """Spoil the last shard."""
    path = data.shards("train")[-1]
    pq.write_table(change(pq.read_table(path)), path)


def put(name: str, values: pa.Array) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        rest = pa.array(table[name].to_pylist()[len(values) :], table[name].type)
        return table.set_column(table.column_names.index(name), name, pa.chunked_array([values.cast(rest.type), rest]))

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("itemId", pa.array([50])), r"00001\.parquet: column 'itemId' holds the id 50, but ids range from 0 to 49"),
        (put("userId", pa.array([-1])), r"00001\.parquet: column 'userId' holds the id -1"),
        (put("session", pa.array([[3, 300]])), r"column 'session' holds the id 300, but ids range from 0 to 299"),
        (put("itemId", pa.array([None], pa.int32())), r"column 'itemId' holds 1 nulls instead of ids"),
        (lambda table: table.drop(["price"]), r"00001\.parquet: column 'price' of schema\.json is missing"),
        (
            lambda table: table.set_column(0, "userId", pa.array([[1]] * len(table))),
            r"column 'userId' does not hold single values",
        ),
        (
            lambda table: table.set_column(0, "userId", pa.array(["x"] * len(table))),
            r"column 'userId' holds string instead of ids",
        ),
        (
            lambda table: table.set_column(table.column_names.index("price"), "price", pa.array(["x"] * len(table))),
            r"column 'price' holds string, not numbers",
        ),
    ],
)
def test_loader_names_file_column_and_value_of_bad_data(
    numbered: Make, change: Callable[[pa.Table], pa.Table], message: str
) -> None:
    data = numbered(100)
    rewrite(data, change)
    with pytest.raises(DataError, match=message):
        Loader(data, "train", batch_size=4)


def test_loader_names_ids_beyond_the_footer_other_files_and_lost_shards(numbered: Make) -> None:
    data = numbered(100)
    first, second = data.shards("train")
    pq.write_table(put("itemId", pa.array([77]))(pq.read_table(first)), first, write_statistics=False)
    with pytest.raises(DataError, match=r"00000\.parquet: column 'itemId' holds the id 77, but ids range from 0 to 49"):
        Loader(data, "train", batch_size=4)
    second.write_bytes(b"<html>")
    with pytest.raises(DataError, match=r"00001\.parquet: not a readable parquet file"):
        Loader(data, "train", batch_size=4)
    second.unlink()
    with pytest.raises(DataError, match=r"has 50 rows, but the manifest says 100"):
        Loader(data, "train", batch_size=4)
    with pytest.raises(DataError, match=r"train: there are no rows to train on"):
        Loader(numbered(0), "train", batch_size=4)


def test_loader_reads_a_null_number_as_nan_and_a_null_list_as_empty(numbered: Make) -> None:
    data = numbered(100)
    rewrite(data, put("price", pa.array([None], pa.float64())))
    rewrite(data, put("session", pa.array([None], pa.list_(pa.int32()))))
    batch = next(iter(Loader(data, "train", batch_size=100)))
    session = batch.features["session"]
    assert isinstance(session, Ragged)
    assert np.flatnonzero(torch.isnan(batch.features["price"]).numpy()).tolist() == [50]  # type: ignore[arg-type]
    assert session.offsets.diff().tolist() == [i % 4 if i != 50 else 0 for i in range(100)]


@pytest.mark.parametrize("wrong", [{"batch_size": 0}, {"batch_size": 4, "rank": 2, "world_size": 2}])
def test_loader_refuses_impossible_arguments(numbered: Make, wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=r"a loader cannot have batch_size=\d, rank=\d of \d"):
        Loader(numbered(10), "train", **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("layout", ["star", "flat"])
def test_recent_rows_come_with_a_sample_of_the_others(numbered: Make, layout: str) -> None:
    data = numbered(501, shards=3, layout=layout)
    times = read_times(data, "train")
    assert times is not None
    after = float(np.sort(times)[-21])
    recent = RecentRows(after, history=3.0, seed=1)
    chosen = recent.chosen(times > after)
    loader = Loader(data, "train", batch_size=16, shuffle=True, recent=recent)
    assert loader.num_rows == 80
    every = np.array(users(Loader(data, "train", batch_size=64)))
    assert sorted(users(loader)) == sorted(every[chosen])
    assert set(every[times > after]) <= set(users(loader))
    assert not np.array_equal(chosen, RecentRows(after, history=3.0, seed=2).chosen(times > after))
    assert Loader(data, "train", batch_size=16, recent=RecentRows(1e18, history=2.0, seed=1)).num_rows == 2
