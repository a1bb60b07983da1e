"""Large tables: equal scores, pages of the rows."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest
import torch

import recsys_cli as recsys
from recsys_cli.serving.bundle import load_bundle
from recsys_cli.serving.large_tables import page_ranges, read_by_page
from recsys_cli.serving.query import Query
from tests.served_runs import ITEMS, USERS, MakeRun

PAGE = mmap.PAGESIZE


@pytest.fixture(scope="module", params=["mf", "fm"])
def bundle(request: pytest.FixtureRequest, make_run: MakeRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recsys.export(make_run(request.param), tmp_path_factory.mktemp("large") / request.param, progress=False)


def test_scores_are_equal_to_the_bit(bundle: Path) -> None:
    plain, paged = load_bundle(bundle), load_bundle(bundle)
    read_by_page(paged.served.model, large=0)
    rows = {"userId": [1 + n % USERS for n in range(500)], "movieId": [1 + n % ITEMS for n in range(500)]}
    assert paged.score(rows).tobytes() == plain.score(rows).tobytes()
    assert (
        paged.score({"userId": [7], "movieId": [3]}).tobytes() == plain.score({"userId": [7], "movieId": [3]}).tobytes()
    )
    query = Query(user=7, k=5)
    assert paged.recommend([query]) == plain.recommend([query])


@pytest.mark.parametrize("width", [1, 3, 64, 1_000, 5_000])
def test_page_ranges_cover_the_rows_and_are_disjoint(width: int) -> None:
    table = torch.zeros(3_000, width)[1:]
    ids = torch.tensor([0, 1, 2, 40, 41, 900, 901, 2_998])
    starts, sizes = (values.tolist() for values in page_ranges(table, ids))
    covered = [
        address for start, size in zip(starts, sizes, strict=True) for address in range(start, start + size, PAGE)
    ]
    assert covered == sorted(set(covered))
    first = [table.data_ptr() + int(one) * width * 4 for one in ids]
    assert set(covered) == {
        address for start in first for address in range(start // PAGE * PAGE, start + width * 4, PAGE)
    }
    assert all(start + size < following for start, size, following in zip(starts, sizes, starts[1:], strict=False))


def test_page_ranges_of_no_rows_are_empty() -> None:
    starts, sizes = page_ranges(torch.zeros(10, 4), torch.empty(0, dtype=torch.int64))
    assert len(starts) == len(sizes) == 0
