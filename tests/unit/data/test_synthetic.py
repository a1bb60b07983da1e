"""Synthetic ratings and events: equal seeds, skew, and ceilings."""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from recsys_cli.data import FetchRequest, open_source
from recsys_cli.data import planted as files
from recsys_cli.data.planted import PlantedWorld, Ratings
from recsys_cli.data.planted_events import clicks, impressions, sessions
from recsys_cli.data.synthetic import SyntheticOptions
from recsys_cli.errors import ConfigError
from recsys_cli.events import ignore
from recsys_cli.metrics.labels import AUC
from tests.contract import synthetic_world
from tests.unit.data.wayward import Watcher

OPTIONS = {"users": 150, "items": 200, "rows": 6_000, "seed": 7}


def fetched(folder: Path, options: dict[str, int] | None = None) -> dict[str, object]:
    folder.mkdir()
    return open_source("synthetic", OPTIONS if options is None else options).fetch(FetchRequest(folder, folder), ignore)


def size(**changes: float) -> SyntheticOptions:
    given = {"users": 1_000, "items": 800, "rows": 100_000, "seed": 1, "activity": 1.0}
    return SyntheticOptions.model_validate({**given, **changes})


def all_ratings(world: PlantedWorld) -> Ratings:
    chunks = list(world.ratings())
    return Ratings(
        **{name: np.concatenate([getattr(chunk, name) for chunk in chunks]) for name in Ratings.__dataclass_fields__}
    )


@pytest.fixture(scope="module")
def world() -> PlantedWorld:
    return PlantedWorld(size())


@pytest.fixture(scope="module")
def ratings(world: PlantedWorld) -> Ratings:
    return all_ratings(world)


def test_files_are_movielens_files(tmp_path: Path, watcher: Watcher) -> None:
    source = open_source("synthetic", OPTIONS)
    (tmp_path / "raw").mkdir()
    source.fetch(FetchRequest(tmp_path / "raw", tmp_path), watcher)
    interactions, movies = source.tables(tmp_path / "raw")
    text = interactions.files[0].read_text()
    assert text.startswith("userId,movieId,rating,timestamp\n")
    assert {line.split(",")[2] for line in text.splitlines()[1:]} <= {f"{half / 2:.1f}" for half in range(1, 11)}
    with movies.files[0].open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["movieId", "title", "genres"] == [column.name for column in movies.columns]
    assert {row["genres"] for row in rows} >= {"(no genres listed)", "Drama"}
    assert any("," in row["title"] for row in rows)
    last = watcher.progress("generate synthetic")[-1]
    assert (last.done, last.total) == (OPTIONS["rows"],) * 2


def test_counts_are_exact_and_pairs_unique(tmp_path: Path) -> None:
    fetched(tmp_path / "raw")
    table = pyarrow.csv.read_csv(tmp_path / "raw/ratings.csv")
    pairs = list(zip(table["userId"].to_pylist(), table["movieId"].to_pylist(), strict=True))
    assert len(pairs) == len(set(pairs)) == OPTIONS["rows"]
    assert pairs == sorted(pairs)
    assert {user for user, _ in pairs} == set(range(1, OPTIONS["users"] + 1))
    known = set(pyarrow.csv.read_csv(tmp_path / "raw/movies.csv")["movieId"].to_pylist())
    assert len(known) == OPTIONS["items"]
    assert {item for _, item in pairs} <= known


def test_equal_seeds_give_equal_bytes(tmp_path: Path) -> None:
    facts = [fetched(tmp_path / name) for name in ("a", "b")]
    assert facts[0] == facts[1]
    fetched(tmp_path / "c", {**OPTIONS, "seed": 8})
    for name in ("ratings.csv", "movies.csv"):
        first, second, other = ((tmp_path / folder / name).read_bytes() for folder in "abc")
        assert first == second != other


@pytest.mark.parametrize(
    "changes",
    [
        {"users": 1, "items": 2, "rows": 1},
        {"users": 3, "items": 400, "rows": 600},  # everybody rates half of all: the end of drawing without replacement
        {"users": 500, "items": 1_000, "rows": 500},
        {"users": 40, "items": 50, "rows": 700, "genres": 1, "dim": 0, "years": 1, "activity": 0.0},
        {"users": 60, "items": 500, "rows": 9_000, "activity": 3.0},
    ],
)
def test_any_size_is_exact(changes: dict[str, float]) -> None:
    made = all_ratings(PlantedWorld(size(**changes)))
    assert len(made.user) == changes["rows"]
    assert len(np.unique(made.user * 10_000 + made.item)) == changes["rows"]
    assert len(np.unique(made.user)) == changes["users"]
    assert made.item.max() < changes["items"]


def test_chunks_hold_whole_users_and_do_not_repeat_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recsys_cli.data.planted.CHUNK_ROWS", 10_000)
    chunks = list(PlantedWorld(size()).ratings())
    assert len(chunks) > 5
    users = [set(chunk.user.tolist()) for chunk in chunks]
    assert sum(map(len, users)) == len(set().union(*users)) == 1_000
    assert not np.array_equal(chunks[0].item[:100], chunks[1].item[:100])


def test_ceiling_agrees_with_the_files(tmp_path: Path, ratings: Ratings) -> None:
    facts = files.write_ratings(PlantedWorld(size()), tmp_path / "ratings.csv", lambda _: None)
    liked = np.array(pyarrow.csv.read_csv(tmp_path / "ratings.csv")["rating"]) > 3
    assert facts["ceiling"] == {"label": "rating > 3", "auc": AUC.of_rows(liked, ratings.score), "rows": 100_000}
    assert facts["positives"] == pytest.approx(liked.mean())


def test_large_sets_have_a_sampled_ceiling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "SAMPLE_ROWS", 1_000)
    monkeypatch.setattr("recsys_cli.data.planted.CHUNK_ROWS", 700)
    whole = fetched(tmp_path / "raw")
    assert whole["ceiling"]["rows"] == 1_000  # type: ignore[index]


def test_ratings_of_one_class_have_no_ceiling(tmp_path: Path) -> None:
    world = PlantedWorld(size(rows=2_000, users=100))
    world.user_bias += 9
    facts = files.write_ratings(world, tmp_path / "ratings.csv", lambda _: None)
    assert facts["ceiling"] == {"label": "rating > 3", "auc": None, "rows": 2_000}


def test_ceiling_of_the_presets_leaves_room(tmp_path: Path) -> None:
    facts = fetched(tmp_path / "raw", {"rows": 60_000, "users": 600})
    assert 0.78 < facts["ceiling"]["auc"] < 0.88  # type: ignore[index]
    assert 0.4 < facts["positives"] < 0.75  # type: ignore[operator]


def test_item_means_follow_their_bias(world: PlantedWorld, ratings: Ratings) -> None:
    count = np.bincount(ratings.item, minlength=800)
    mean = np.bincount(ratings.item, ratings.half_stars / 2, minlength=800) / np.maximum(count, 1)
    often = count > 50
    assert np.corrcoef(mean[often], world.item_bias[often])[0, 1] > 0.8


def test_genre_taste_moves_ratings(world: PlantedWorld, ratings: Ratings) -> None:
    taste = np.einsum("nd,nd->n", world.user_vectors[ratings.user], world.item_vectors[ratings.item])
    rest = ratings.half_stars / 2 - world.user_bias[ratings.user] - world.item_bias[ratings.item]
    assert np.corrcoef(taste, rest)[0, 1] > 0.3


def test_popularity_and_activity_are_skewed(ratings: Ratings) -> None:
    by_item = np.sort(np.bincount(ratings.item, minlength=800))[::-1]
    by_user = np.sort(np.bincount(ratings.user, minlength=1_000))[::-1]
    assert by_item[:80].sum() > 0.25 * len(ratings.item)
    assert by_user[:100].sum() > 0.25 * len(ratings.user)
    assert by_user.min() >= 20


def test_chances_equal_sampling_frequencies(world: PlantedWorld) -> None:
    """Many samples for one user at one time, without history: all frequencies within their confidence limits."""
    draws, user, time = 200_000, 17, 0.4
    rng = np.random.default_rng(0)
    users, charts = np.full(draws, user), np.full(draws, int(time * len(world.charts)))
    chosen = np.bincount(world._candidates(rng, users, charts), minlength=800)
    chances = synthetic_world.chances(world, user, time)
    assert chances.sum() == pytest.approx(1)
    spread = np.sqrt(draws * chances * (1 - chances)) + 1
    assert (np.abs(chosen - draws * chances) < 4.5 * spread).all()


def test_popularity_drifts(ratings: Ratings) -> None:
    early = ratings.timestamp < np.quantile(ratings.timestamp, 0.3)
    late = ratings.timestamp > np.quantile(ratings.timestamp, 0.7)
    odd = ratings.user % 2 == 1
    share = [np.bincount(ratings.item[part], minlength=800) for part in (early & odd, early & ~odd, late)]
    assert np.corrcoef(share[0], share[1])[0, 1] > np.corrcoef(share[0], share[2])[0, 1] + 0.1


def test_ratings_come_in_sessions_over_years(ratings: Ratings) -> None:
    order = np.lexsort((ratings.timestamp, ratings.user))
    pause = np.diff(ratings.timestamp[order])[np.diff(ratings.user[order]) == 0]
    assert np.median(pause) < 600
    assert np.quantile(pause, 0.99) > 7 * 86_400
    assert ratings.timestamp.max() - ratings.timestamp.min() > 10 * 365 * 86_400
    assert ratings.timestamp.max() < 1_704_067_200


def test_presets_have_their_counts() -> None:
    assert open_source("synthetic-25m").info.rows == 25_000_095
    assert open_source("synthetic-25m").identity()["users"] == 162_541
    assert open_source("synthetic-small", {"seed": 3}).identity()["seed"] == 3


def test_all_invalid_options_are_reported() -> None:
    with pytest.raises(ConfigError) as caught:
        open_source("synthetic", {"user": 3, "items": "many", "seed": -1})
    assert "dataset.user: unknown option (did you mean users?)" in caught.value.message
    assert "dataset.items:" in caught.value.message
    assert "dataset.seed:" in caught.value.message


@pytest.mark.parametrize("rows", [149, 150 * 100 + 1])
def test_rows_have_to_fit(rows: int) -> None:
    with pytest.raises(ConfigError, match="rows has to be 150 to 15,000"):
        open_source("synthetic", {**OPTIONS, "rows": rows})


@pytest.mark.parametrize("name", ["synthetic-small", "synthetic-clicks"])
def test_generated_data_refuses_mirror_and_archive(name: str, tmp_path: Path) -> None:
    for given in ({"mirror": "https://x"}, {"from_file": tmp_path}):
        with pytest.raises(ConfigError, match="is generated"):
            open_source(name).fetch(FetchRequest(tmp_path, tmp_path, **given), ignore)


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
