"""Short ways of requests with one row: the same values, to the bit, as those of many rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from recsys_cli.loader.ragged import pick_lists
from recsys_cli.models.embedding.lookup import Lookup
from recsys_cli.models.embedding.tables import distinct


@pytest.mark.parametrize("ids", [[], [7], [9, 3, 9, 0], list(range(8, 0, -1)), list(range(20, 0, -1))])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_distinct_ids_are_those_of_numpy(ids: list[int], dtype: torch.dtype) -> None:
    with torch.inference_mode():
        used, inverse = distinct(torch.tensor(ids, dtype=dtype))

    expected, places = np.unique(np.array(ids, np.int64), return_inverse=True)
    assert (used.dtype, inverse.dtype) == (torch.int64, torch.int64)
    assert (used.tolist(), inverse.tolist()) == (expected.tolist(), places.tolist())


@pytest.mark.parametrize("stored", [torch.uint8, torch.uint16, torch.int32, torch.float32])
@pytest.mark.parametrize("row", range(3))
def test_one_list_is_that_of_several_rows(row: int, stored: torch.dtype) -> None:
    values, weights = torch.arange(10).to(stored), torch.rand(10)
    starts, lengths = torch.tensor([6, 2, 0], dtype=torch.int32), torch.tensor([4, 3, 0], dtype=torch.int32)
    dtype = torch.float32 if stored.is_floating_point else torch.int32

    one = pick_lists(values, starts[row : row + 1], lengths[row : row + 1], dtype, weights)
    expected = pick_lists(values, starts, lengths, dtype, weights).span(row, row + 1)

    assert one.values.dtype == expected.values.dtype
    for part, other in zip(one.tensors(), expected.tensors(), strict=True):
        assert torch.equal(part, other)


@pytest.mark.parametrize("weights", [None, torch.rand(4)])
@torch.inference_mode()
def test_one_row_is_spread_as_among_several(weights: torch.Tensor | None) -> None:
    rows, inverse = torch.randn(3, 5), torch.tensor([2, 0, 2, 1])

    one = Lookup(rows, inverse, torch.tensor([0, 4]), weights).spread()
    several = Lookup(rows, inverse, torch.tensor([0, 4, 4, 4]), weights)

    assert torch.equal(one, several._counts(torch.tensor([0, 4, 4, 4]))[:1] @ rows)
    torch.testing.assert_close(one, several.spread()[:1])
    assert torch.equal(Lookup(rows[:1], torch.tensor([0])).spread(), rows[:1])
