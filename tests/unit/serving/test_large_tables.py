"""Large tables: equal scores, counted pages."""

from __future__ import annotations

import asyncio
import mmap
from pathlib import Path

import pytest
import torch

import recsys_cli as recsys
from recsys_cli.serving import large_tables
from recsys_cli.serving.bundle import load_bundle
from recsys_cli.serving.http.batching import ModelThread, Work
from recsys_cli.serving.http.metrics import Metrics
from recsys_cli.serving.http.settings import Batching
from recsys_cli.serving.large_tables import CacheCounters, page_ranges, read_by_page
from recsys_cli.serving.query import Query
from tests.served_runs import ITEMS, USERS, MakeRun

PAGE = mmap.PAGESIZE


@pytest.fixture(scope="module", params=["mf", "fm"])
def bundle(request: pytest.FixtureRequest, make_run: MakeRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recsys.export(make_run(request.param), tmp_path_factory.mktemp("large") / request.param, progress=False)


def test_scores_are_equal_to_the_bit_and_pages_are_counted(bundle: Path) -> None:
    plain, paged = load_bundle(bundle), load_bundle(bundle)
    counters = read_by_page(paged.served.model, large=0)
    rows = {"userId": [1 + n % USERS for n in range(500)], "movieId": [1 + n % ITEMS for n in range(500)]}
    assert paged.score(rows).tobytes() == plain.score(rows).tobytes()
    assert (
        paged.score({"userId": [7], "movieId": [3]}).tobytes() == plain.score({"userId": [7], "movieId": [3]}).tobytes()
    )
    query = Query(user=7, k=5)
    assert paged.recommend([query]) == plain.recommend([query])
    assert counters.hits + counters.misses > 0
    assert plain.served.cache == CacheCounters()  # tables of a few KB are not large


def test_misses_are_the_pages_read_from_disk(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load_bundle(bundle).served.model
    counters = read_by_page(model, large=0)
    embeddings = next(one for one in model.modules() if isinstance(one, large_tables.Embeddings))
    name = embeddings.names[0]
    ids = torch.arange(embeddings.table(name).shape[0])
    pages = int(page_ranges(embeddings.table(name), ids)[1].sum()) // PAGE
    for read, misses in ((PAGE, 1), (0, 0), (100 * PAGE, pages)):
        counters.hits = counters.misses = 0
        before_and_after = iter((5 * PAGE, 5 * PAGE + read))
        monkeypatch.setattr(large_tables, "_bytes_read", lambda values=before_and_after: next(values))
        with torch.inference_mode():
            embeddings.rows({name: ids})
        assert counters == CacheCounters(hits=pages - misses, misses=misses)


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


def test_pages_are_metrics_of_the_server(bundle: Path) -> None:
    recommender, metrics = load_bundle(bundle), Metrics()
    cache = read_by_page(recommender.served.model, large=0)

    async def answer_twice() -> None:
        thread = ModelThread("a", recommender, Batching(), Work(1e-6, limit=10.0), metrics, lambda: 1, cache)
        for _ in range(2):
            await thread.recommend([Query(user=7)])
        await thread.close()

    asyncio.run(answer_twice())
    text = metrics.text().decode()
    assert f'recsys_table_pages_total{{bundle="a",result="hits"}} {float(cache.hits)}' in text
    assert f'recsys_table_pages_total{{bundle="a",result="misses"}} {float(cache.misses)}' in text
    assert cache.hits + cache.misses > 0
