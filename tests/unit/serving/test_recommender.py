"""Recommendations on request: the same by a run, its bundle and an evaluation; filters, fallbacks and odd requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import recsys_cli as recsys
from recsys_cli.errors import ConfigError
from recsys_cli.evaluation.names import IdNames
from recsys_cli.evaluation.rankings import Rankings
from recsys_cli.evaluation.result import MODEL
from recsys_cli.features.schema import FIRST, Role
from recsys_cli.serving.bundle import load_bundle
from recsys_cli.serving.ids import IdIndex
from recsys_cli.serving.query import Answer, Query
from recsys_cli.serving.recommender import Recommender
from tests.served_runs import MODELS, USERS, MakeRun, history_of

Recommenders = Callable[[str], Recommender]
FOLDING = ("ease", "ials", "sasrec", "item-knn")
EVERYBODY = [Query(user=user, k=5) for user in range(1, USERS + 1)]


def pairs(answer: Answer) -> list[tuple[int, float]]:
    return [(one.item.id, one.score) for one in answer.items]


def ids(answer: Answer) -> list[int]:
    return [one.item.id for one in answer.items]


@pytest.fixture(scope="module", params=MODELS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def test_a_bundle_scores_as_its_run(name: str, recommenders: Recommenders, make_run: MakeRun, tmp_path: Path) -> None:
    """To the bit, except dense layers: their rounding depends on the alignment of the weights in memory."""
    folder = recsys.export(make_run(name), tmp_path / "bundle", progress=False)
    by_bundle = load_bundle(folder, verify=True)
    rel = 1e-6 if name == "two-tower" else 0
    for queries in (EVERYBODY, EVERYBODY[:1], [Query(history=[1, 3, 5])]):
        for expected, answer in zip(recommenders(name).recommend(queries), by_bundle.recommend(queries), strict=True):
            assert [item for item, _ in pairs(answer)] == [item for item, _ in pairs(expected)]
            assert [score for _, score in pairs(answer)] == pytest.approx(
                [x for _, x in pairs(expected)], rel=rel, abs=0
            )


def test_recommendations_are_those_of_the_run_and_of_the_evaluation(
    name: str, recommenders: Recommenders, make_run: MakeRun, served_workspace: recsys.Workspace
) -> None:
    run = make_run(name)
    answers = dict(zip(range(1, USERS + 1), recommenders(name).recommend(EVERYBODY), strict=True))
    frame = run.recommend(k=5).table.to_pylist()
    expected: dict[int, list[tuple[int, float]]] = {}
    for row in frame:
        expected.setdefault(row["user"], []).append((row["item"], row["score"]))
    for user, answer in answers.items():
        assert ids(answer) == [item for item, _ in expected[user]]
        assert [one.score for one in answer.items] == pytest.approx([s for _, s in expected[user]], rel=1e-5, abs=1e-6)
        assert answer.source == "model"
    recsys.evaluate(run, progress=False)
    rankings, names = Rankings.read(run.rankings), IdNames(served_workspace.data_of(run))
    for row in np.flatnonzero(rankings.users >= FIRST):
        top = rankings.items[MODEL][row, :5]
        user = int(names.user(int(rankings.users[row])))
        assert ids(answers[user]) == names.decode(Role.ITEM, top[top >= FIRST].astype(np.int64)).to_pylist()


def test_one_user_has_the_same_ranking_as_in_a_batch(name: str, recommenders: Recommenders) -> None:
    batch = recommenders(name).recommend(EVERYBODY)
    for query, answer in zip(EVERYBODY[:10], batch, strict=False):
        assert ids(recommenders(name).recommend([query])[0]) == ids(answer)


@pytest.mark.parametrize("folding", FOLDING)
def test_a_history_of_a_trained_user_gives_the_trained_ranking(folding: str, recommenders: Recommenders) -> None:
    recommender = recommenders(folding)
    queries = [Query(user=7, k=5), Query(history=history_of(recommender, 7), k=5)]
    known, folded = recommender.recommend(queries)
    assert ids(folded) == ids(known)
    assert folded.source == "fold-in"


def test_filters_hold_for_every_model(name: str, recommenders: Recommenders) -> None:
    recommender = recommenders(name)
    plain, comedy, chosen, without, seen = recommender.recommend([
        Query(user=3, k=50), Query(user=3, k=50, where="genres contains comedy"),
        Query(user=3, k=50, candidates=[1, 2, 3, 4, 5, 6, "unknown"]), Query(user=3, k=50, exclude=[2, 4, 777]),
        Query(user=3, k=50, exclude_seen=False),
    ])  # fmt: skip
    genres = {one.item.id: one.item.features["genres"] for one in plain.items}
    assert ids(comedy) == [item for item in ids(plain) if "Comedy" in genres[item]]
    assert ids(chosen) == [item for item in ids(plain) if item <= 6]
    assert "1 of 7 ids of the candidates are unknown: unknown" in (chosen.note or "")
    assert ids(without) == [item for item in ids(plain) if item not in {2, 4}]
    assert len(seen.items) == len(plain.items) + plain.num_seen
    assert seen.num_seen == 0


def test_an_anonymous_user_gets_fold_in_or_popularity(name: str, recommenders: Recommenders) -> None:
    recommender = recommenders(name)
    new, unknown, empty = recommender.recommend([
        Query(history=[1, 3, 5, 777], explain=True), Query(user=10_000), Query(user=None, history=[]),
    ])  # fmt: skip
    folds_in = recommender.served.model.folds_in
    assert new.source == ("fold-in" if folds_in else "popularity")
    assert new.num_seen == 3
    assert "1 of 4 ids of the history are unknown: 777" in str(new.note)
    assert any(one.because for one in new.items) == folds_in
    for answer in (unknown, empty):
        assert answer.source == "popularity"
        assert answer.note
        scores = [one.score for one in answer.items]
        assert scores == sorted(scores, reverse=True)
        assert ids(answer) == [recommender.catalog.item(place).id for place in range(10)]


def test_a_user_without_rows_in_train_is_named_with_what_helps(name: str, recommenders: Recommenders) -> None:
    """Rows in valid or test do not count: the model has not seen the user."""
    recommender = recommenders(name)
    served, (answer,) = recommender.served, recommender.recommend([Query(user=10_000)])
    reason = "history of items in train" if served.model.folds_in else "row in train"
    refusal = f"{served.source.name} cannot fold in a history; train with rows of the user"
    step = "give item ids as the history" if served.takes_histories else refusal
    assert answer.note == f"user 10000 has no {reason}: {step}"


def test_a_history_with_items_that_are_not_in_train_says_so(name: str, recommenders: Recommenders) -> None:
    recommender = recommenders(name)
    mixed, known, none = recommender.recommend([Query(history=[1, 43, 3]), Query(history=[1, 3]), Query(history=[43])])
    takes = recommender.served.takes_histories
    assert ("1 of 3 items of the history are not in train" in str(mixed.note)) == takes
    assert [pair for pair in pairs(mixed) if pair[0] != 43] == [pair for pair in pairs(known) if pair[0] != 43]
    assert mixed.source == known.source
    assert none.source == "popularity"
    assert ("no item of the history is in train" in str(none.note)) == takes


def test_nothing_left_is_an_empty_list_with_the_reason(name: str, recommenders: Recommenders) -> None:
    everything = list(range(1, 46))
    seen, filtered, huge = recommenders(name).recommend([
        Query(history=everything, k=5), Query(user=3, where="movieId > 1000"), Query(user=3, k=10**9),
    ])  # fmt: skip
    assert (seen.items, seen.source) == ((), "none")
    assert "all items are seen" in str(seen.note)
    assert (filtered.items, filtered.source) == ((), "none")
    assert "no item passes the filters" in str(filtered.note)
    assert 0 < len(huge.items) < 46


def test_reasons_similar_items_and_diversity(name: str, recommenders: Recommenders) -> None:
    recommender = recommenders(name)
    (plain, diverse) = recommender.recommend([Query(user=3, k=8, explain=True), Query(user=3, k=8, diversity=0.9)])
    assert any(one.because for one in plain.items)
    assert len(diverse.items) == 8
    assert ids(diverse)[0] == ids(plain)[0]
    assert set(ids(diverse)) <= {one.item.id for one in recommender.recommend([Query(user=3, k=100)])[0].items}
    similar = recommender.similar(5, 3)
    assert len(similar.items) == 3
    assert 5 not in ids(similar)
    assert recommender.similar("nothing", 3).source == "none"
    assert [item.title for item in recommender.catalog.search("movie 07", 5)] == ["Movie 07"]
    assert recommender.catalog.search("no such title", 5) == []


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (Query(user=1, k=0), "k is 0"),
        (Query(user=1, k=True), "k is True"),
        (Query(user=1, diversity=1.5), "diversity is 1.5"),
        (Query(user=1, where="genre contains x"), "names 'genre'.*did you mean genres"),
        (Query(user=1, where="genres contains"), "cannot read the expression"),
        (Query(user=1, where="genres == 'Comedy'"), "compares a list"),
        (Query(user=1, where="title > 3"), "'>' with text"),
        (Query(user=1, where="__import__('os')"), "not allowed"),
        (Query(user=1, history="1,2"), "history is of type str"),
        (Query(user=1, exclude=iter([1])), "exclude is of type list_iterator"),  # type: ignore[arg-type]
    ],
)
def test_an_invalid_query_says_what_is_wrong(query: Query, message: str, recommenders: Recommenders) -> None:
    with pytest.raises(ConfigError, match=message):
        recommenders("mf").recommend([query])


@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        ("year >= 1995 and not genres contains Drama", lambda n: n % 20 >= 15 and n % 4 in {0, 2}),
        ("contains(title, 'movie 1') or movieId == 3", lambda n: 10 <= n < 20 or n == 3),
        ('title contains "2 " or year == 1981', lambda n: n % 20 == 1),
        ("is_null(genres) or movieId < 4 and 2 * movieId > 2", lambda n: n in {2, 3}),
    ],
)
def test_filter_expressions(where: str, wanted: Callable[[int], bool], recommenders: Recommenders) -> None:
    (answer,) = recommenders("mf").recommend([Query(user=1, where=where, exclude_seen=False, k=100)])
    assert set(ids(answer)) == {n for n in range(1, 41) if wanted(n)}


def test_mixed_types_of_ids_are_looked_up(recommenders: Recommenders) -> None:
    by_text, by_number, by_array, by_column, odd = recommenders("ease").recommend([
        Query(user="7", candidates=["1", 2, 3.0]), Query(user=7, candidates=[1, 2, 3]),
        Query(user=7, candidates=np.arange(1, 4)), Query(user=7, candidates=pl.Series([1, 2, 3])),  # type: ignore[arg-type]
        Query(user={"a": 1}, history=[None, [1], "x", 2**70]),
    ])  # fmt: skip
    assert pairs(by_text) == pairs(by_number) == pairs(by_array) == pairs(by_column)
    assert odd.source == "popularity"


def test_the_histories_of_a_request_do_not_change_later_answers(recommenders: Recommenders) -> None:
    recommender = recommenders("sasrec")
    (before,) = recommender.recommend([EVERYBODY[0]])
    recommender.recommend([replace(EVERYBODY[0], history=[1, 2, 3])])
    assert pairs(recommender.recommend([EVERYBODY[0]])[0]) == pairs(before)


def test_a_filter_holds_for_candidates_too(recommenders: Recommenders) -> None:
    """Movies 4, 8, 12 … are comedies without a second genre; the candidates have both kinds."""
    model, candidates = recommenders("ease"), list(range(1, 13))
    query = Query(user=3, k=50, candidates=candidates, where="genres contains War", exclude_seen=False)
    assert sorted(ids(model.recommend([query])[0])) == [1, 5, 9]


@pytest.mark.parametrize("raw", ["Foo\u00a0Bar", "東京\u3000タワー", "4\0", "\ud800", " "])
def test_ids_have_any_character_but_control_characters(raw: str) -> None:
    ids = IdIndex.of(pa.array(["a"]), num_train=1, cardinality=4)
    assert ids.canonical(raw) == (raw if len(raw) > 2 else None)
