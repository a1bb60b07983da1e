"""The stream on which batches are built: they are whole when they are used, and nobody waits for the device to get them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from recsys_cli.batch import Batch, Ragged
from recsys_cli.loader import Loader
from recsys_cli.loader.copying import SideStream, to_device
from recsys_cli.workspace import PreparedData

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

Make = Callable[..., PreparedData]
CUDA = torch.device("cuda")
BUSY = 100_000_000
"""Cycles for which a stream sleeps: tens of milliseconds, in which a copy that did not wait would be seen half done."""


def digest(batch: Batch) -> list[torch.Tensor]:
    """A number for each tensor of a batch, computed on the device."""
    return [tensor.double().sum() for tensor in batch.tensors()]


@pytest.mark.parametrize("memory", [1, 4096], ids=["streamed", "resident"])
def test_batches_are_whole_when_they_are_used_at_once(make_prepared: Make, memory: int) -> None:
    data = make_prepared(rows=400_000, shards=8)
    how = {"batch_size": 5_000, "shuffle": True, "seed": 3, "memory": memory}
    expected = [[float(number) for number in digest(batch)] for batch in Loader(data, "train", **how)]
    found = []
    loader = Loader(data, "train", device="cuda", **how)
    assert loader.resident == (memory > 1)
    for batch in loader:
        found.append(digest(batch))  # only queued, and the batch is dropped: its memory is free for those to come
        torch.cuda._sleep(BUSY // 1000)
    assert [[float(number) for number in numbers] for numbers in found] == expected


def test_a_batch_is_waited_for_on_the_device_and_not_on_the_host() -> None:
    side = SideStream(CUDA)
    values = torch.arange(1_000_000.0)

    def make() -> Batch:
        column = to_device(values, CUDA)
        assert isinstance(column, torch.Tensor)
        return Batch({"column": column}, {})

    def late() -> Batch:
        torch.cuda._sleep(BUSY)
        return make()

    float(side.take(side.build(make)).features["column"].sum())  # type: ignore[union-attr]
    torch.cuda.synchronize()  # and now there is memory, pinned and on the device, that nobody has to wait for
    built = side.build(late)
    assert built.ready is not None
    assert not built.ready.query(), "building waited"
    batch = side.take(built)
    total = batch.features["column"].sum()  # type: ignore[union-attr]
    assert not built.ready.query(), "taking waited"
    assert float(total) == float(values.cuda().sum())
    assert built.ready.query()
    side.close()


def test_memory_of_a_batch_is_not_handed_on_while_it_is_in_use() -> None:
    side, size = SideStream(CUDA), 10_000_000
    built = side.build(lambda: Batch({"a": torch.ones(size, device=CUDA)}, {}))
    batch = side.take(built)
    torch.cuda._sleep(BUSY)
    total = batch.features["a"].sum()  # type: ignore[union-attr]
    del batch, built
    again = side.build(lambda: Batch({"a": torch.zeros(size, device=CUDA)}, {}))  # would take the same memory
    torch.cuda.synchronize()
    assert float(total) == size
    assert again.batch.num_rows == size
    side.close()


@pytest.mark.parametrize("ragged", [False, True])
def test_columns_keep_their_types_on_the_way(ragged: bool) -> None:
    ids = torch.arange(10, dtype=torch.int32)
    column = Ragged(ids, torch.tensor([0, 4, 10]), ids / 2) if ragged else ids
    moved = to_device(column, CUDA)
    torch.cuda.synchronize()
    pairs = zip(moved.tensors(), column.tensors(), strict=True) if isinstance(moved, Ragged) else [(moved, ids)]  # type: ignore[union-attr]
    for there, here in pairs:
        assert there.is_cuda
        assert there.dtype == here.dtype
        assert torch.equal(there.cpu(), here)


def test_rows_that_stay_on_the_host_are_copied_on_the_side_stream(
    make_prepared: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device=None: (0, 0))  # as if the device were full
    loader = Loader(make_prepared(rows=20_000), "train", batch_size=1_000, device="cuda")
    assert loader.resident
    streams: dict[str, set[int]] = {"Memcpy HtoD (Pinned": set(), "reduce_kernel": set()}
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as found:
        for batch in islice(loader, 10):
            digest(batch)
        torch.cuda.synchronize()
    for event in found.profiler.kineto_results.events():
        for name, found_on in streams.items():
            if name in event.name():
                found_on.add(event.device_resource_id())
    copied, summed = streams.values()
    assert copied, "no copy came from pinned memory"
    assert summed
    assert not copied & summed


def test_padded_lists_are_the_same_on_the_device() -> None:
    lists = Ragged(torch.arange(6, dtype=torch.int32), torch.tensor([0, 0, 5, 6, 6]))
    for here, there in zip(lists.padded(3), lists.to("cuda").padded(3), strict=True):
        assert torch.equal(here, there.cpu())
