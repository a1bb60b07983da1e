"""Planted click logs, sessions and impressions: reproducible, and with a ceiling that counting approaches."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from recsys_cli.data import FetchRequest, open_source
from recsys_cli.data.planted_events import clicks, impressions, sessions
from recsys_cli.errors import ConfigError
from recsys_cli.events import ignore

MAKE = {
    "clicks": lambda seed: clicks(2_000, seed),
    "sessions": lambda seed: sessions(300, 60, seed),
    "impressions": lambda seed: impressions(50, 30, 200, seed),
}


@pytest.mark.parametrize("name", MAKE)
def test_equal_seeds_give_equal_tables(name: str) -> None:
    first, again, other = (MAKE[name](seed) for seed in (1, 1, 2))
    assert first == again
    assert first[0]["interactions"] != other[0]["interactions"]


def test_counts_of_successors_approach_the_ceiling_of_sessions() -> None:
    tables, facts = sessions(20_000, 60, seed=3)
    rows = tables["interactions"].to_pylist()
    histories: dict[int, list[int]] = defaultdict(list)
    for row in rows:
        histories[row["session"]].append(row["item"])
    assert all(len(set(items)) == len(items) for items in histories.values())
    after: dict[int, Counter[int]] = defaultdict(Counter)
    for items in histories.values():
        for one, following in pairwise(items[:-1]):
            after[one][following] += 1
    hits = []
    for items in histories.values():
        ranked = [item for item, _ in after[items[-2]].most_common() if item not in items[:-1]]
        hits.append(items[-1] in ranked[:10])
    best = facts["ceiling"]["hr@10"]  # type: ignore[index]
    assert best - 0.02 < np.mean(hits) < best + 0.01


def test_events_of_a_session_have_distinct_times_and_those_of_an_impression_one() -> None:
    table = sessions(300, 60, seed=0)[0]["interactions"]
    times: dict[int, list[int]] = defaultdict(list)
    for row in table.to_pylist():
        times[row["session"]].append(row["timestamp"])
    assert {later - earlier for own in times.values() for earlier, later in pairwise(own)} == {30}
    shown = impressions(50, 30, 200, seed=0)[0]["interactions"].group_by("time").aggregate([("news_id", "count")])
    assert set(shown.column("news_id_count").to_pylist()) == {12}
    assert len(shown) == 200


def test_impressions_show_distinct_news() -> None:
    tables, facts = impressions(50, 30, 200, seed=0)
    shown = tables["interactions"].group_by("impression_id").aggregate([("news_id", "count_distinct")])
    assert set(shown.column("news_id_count_distinct").to_pylist()) == {12}
    assert set(tables["interactions"].column("news_id").to_pylist()) <= set(
        tables["news"].column("news_id").to_pylist()
    )
    ceiling = facts["ceiling"]
    assert isinstance(ceiling, dict)
    assert 0.5 < ceiling["ndcg@5"] < ceiling["ndcg@10"] < 1


def test_clicks_have_missing_counts() -> None:
    table = clicks(2_000, seed=0)[0]["interactions"]
    assert 100 < table.column("I1").null_count < 300
    assert table.schema.field("C1").type == pa.string()


def test_generated_data_takes_no_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is generated"):
        open_source("synthetic-clicks").fetch(FetchRequest(tmp_path, tmp_path, from_file=tmp_path), ignore)
