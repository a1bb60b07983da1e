"""`recsys inspect` on four movies with results countable by hand."""

import re
from pathlib import Path

import pytest

from recsys_cli.cli import inspect as shown
from recsys_cli.evaluation.rankings import Rankings
from tests.cli.conftest import copied, drawn, type_in

TRAIN = """\
userId,movieId,rating,timestamp
ann,1,5,1000000000
ann,2,5,1000086400
bob,1,5,1000000000
bob,2,2,1000000001
bob,3,5,1000000002
cem,1,5,1000000003
"""
TEST = """\
userId,movieId,rating,timestamp
cem,2,5,1100000000
cem,3,1,1100000001
ann,3,5,1100000002
"""
MOVIES = """\
movieId,title,genres
1,Toy Story (1995),Comedy|Children
2,<script>alert(1)</script>,Thriller
3,"Heat, or: a title that is far too long for a narrow terminal and goes on and on (1995)",(none)
4,Nobody met it,Drama
"""
CONFIG = """\
dataset:
  name: files
  interactions: train.csv
  tables: {movies: {files: movies.csv, lists: {genres: {separator: "|", empty: (none)}}}}
split: {method: files, train: train.csv, test: test.csv}
features:
  user: userId
  item: movieId
  label: liked
  timestamp: timestamp
  ops:
    - {op: JoinExternal, table: movies, on: movieId, columns: [genres]}
    - {op: Categorify, columns: [userId, movieId, genres]}
    - {op: LambdaOp, expression: "rating > 3", output: liked, dtype: int8}
model: {name: popularity}
train: {device: cpu}
evaluate: {k: [1, 2], bootstrap: 20}
"""


def write_movies(folder: Path, test: str = TEST) -> Path:
    for name, text in (("train.csv", TRAIN), ("test.csv", test), ("movies.csv", MOVIES), ("tiny.yaml", CONFIG)):
        (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Popularity of six rows: three interactions with movie 1, two with 2, one with 3."""
    folder = write_movies(tmp_path_factory.mktemp("movies"))
    type_in(folder, ["-q", "etl", "tiny.yaml"], ["-q", "train"])
    return folder


@pytest.fixture(scope="module")
def measured(made, tmp_path_factory):
    folder = copied(made, tmp_path_factory.mktemp("measured"))
    type_in(folder, ["-q", "evaluate"])
    return folder


@pytest.fixture
def trained(recsys, made, tmp_path):
    copied(made, tmp_path)
    return recsys


@pytest.fixture
def evaluated(recsys, measured, tmp_path):
    copied(measured, tmp_path)
    return recsys


def run_of() -> Path:
    (run,) = Path("workspace/runs").iterdir()
    return run


def test_user_has_history_recommendations_and_hits(trained):
    found = trained("inspect", "user", "cem", "--json").json

    assert found["user"] == "cem"
    assert found["run"] == run_of().name
    assert found["rows"] == {"train": 1, "test": 2}
    assert found["positive"] == {"train": 1, "test": 1}
    (met,) = found["history"]
    assert (met["title"], met["features"]) == ("Toy Story (1995)", {"genres": ["Comedy", "Children"]})
    assert (met["label"], met["time"], met["split"]) == (1.0, 1_000_000_003, "train")
    assert (found["split"], found["to_find"], found["notes"]) == ("test", 1, [])
    best = [(one["place"], one["item"], one["hit"]) for one in found["recommended"]]
    assert best == [(1, "2", True), (2, "3", False)]
    assert found["recommended"][0]["score"] > found["recommended"][1]["score"]


def test_history_is_newest_first_and_k_rows_long(trained):
    found = trained("inspect", "user", "bob", "--k", "2", "--json").json

    assert [met["item"] for met in found["history"]] == ["3", "2"]
    assert found["rows"] == {"train": 3, "test": 0}
    assert (found["recommended"], found["to_find"]) == ([], 0)  # bob has met all items of train


def test_item_has_rank_and_users_of_its_recommendations(evaluated):

    found = evaluated("inspect", "item", "2", "--k", "1", "--json").json

    assert (found["item"], found["title"]) == ("2", "<script>alert(1)</script>")
    assert (found["features"], found["label"]) == ({"genres": ["Thriller"]}, "liked")
    assert (found["rows"], found["positive"]) == ({"train": 2, "test": 1}, {"train": 1, "test": 1})
    assert found["popularity"] == {"place": 2, "items": 3}
    recommended = found["recommended"]
    assert (recommended["k"], recommended["split"], recommended["users_ranked"]) == (1, "test", 2)  # ann and cem
    assert recommended["sampled"] is False
    assert recommended["systems"]["model"] == recommended["systems"]["popularity"] == 1
    assert recommended["users"] == [{"user": "cem", "place": 1, "hit": True}]
    assert found["nearest"] == []
    assert found["notes"] == ["no nearest items: popularity has no item vectors"]


def test_item_of_an_unevaluated_run_has_a_note(trained):
    found = trained("inspect", "item", "3", "--json").json

    assert found["recommended"] is None
    assert "no users with this recommendation before recsys evaluate" in found["notes"]


def test_default_run_is_of_the_last_config(trained):
    name = run_of().name
    assert trained("inspect", "user", "ann", "--run", name[-8:], "--json").json["run"] == name
    answer = trained("inspect", "user", "ann", "--run", "nothing")
    assert (answer.code, f"there are: {name}" in answer.err) == (3, True)


def test_unknown_id_suggests_similar_ones(trained):
    answer = trained("inspect", "user", "kem")
    assert answer.code == 2
    assert "error: unknown user 'kem'; similar: cem" in answer.err
    assert "hint: use a value of userId in the raw data: 3 are in train" in answer.err
    assert "similar: 1 (Toy Story (1995))" in trained("inspect", "item", "Toi Story (1995)").err
    assert trained("inspect", "item", "toy", "--json").json["item"] == "1"
    assert "unknown item '5'; similar: 4, 3, 2" in trained("inspect", "item", "5").err
    assert "3 are in train and 1 more in the joined table" in trained("inspect", "item", "5").err


def test_user_only_in_test_has_a_note(recsys, tmp_path):
    write_movies(tmp_path, TEST + "dan,1,5,1100000003\n")
    type_in(tmp_path, ["-q", "etl", "tiny.yaml"], ["-q", "train"])
    answer = recsys("inspect", "user", "dan")
    assert answer.code == 2
    assert "error: user 'dan' is in test, not in train; only users of train can be inspected" in answer.err
    assert "hint: choose one of the 3 users of train, such as " in answer.err
    assert "unknown user 'dana'" in recsys("inspect", "user", "dana").err


def test_a_cold_item_has_no_place_among_those_of_train(trained):
    found = trained("inspect", "item", "4", "--json").json  # nobody met it, and movies.csv has it
    assert (found["rows"]["train"], found["popularity"]) == (0, {"place": None, "items": 3})
    assert "absent from the 3 items of train" in trained("inspect", "item", "4").out


def test_model_without_recommendations_has_a_reason(recsys, labelled):
    config = Path("ratings.yaml").read_text()
    Path("ratings.yaml").write_text(config.replace("columns: [user_id, item_id", "columns: [user_id, item_id, device"))
    assert recsys("-q", "etl", "ratings.yaml").code == 0
    done = recsys("-q", "train", "train.epochs=1", "train.device=cpu", "model.hidden_dims=[4]", "model.embedding_dim=2")
    assert done.code == 0, done.err
    found = recsys("inspect", "user", "u1", "--json").json
    assert found["recommended"] == []
    assert found["notes"] == [
        "the model cannot recommend: candidates have no interaction features, but the model needs device; to rank, leave "
        "them out of features.ops, prepare and train again; to score rows, keep them"
    ]
    assert found["history"][0]["title"] is None


def test_without_a_run_the_hint_has_the_command(recsys):
    answer = recsys("inspect", "user", "1")
    assert answer.code == 3
    assert "hint: " in answer.err


def test_users_of_a_split_by_user_are_shown_by_hash_with_the_part_that_describes_them(recsys, labelled):
    config = [
        "split.method=user", "split.test=0.5", "model.name=popularity", "train.monitor=auc", "evaluate.k=[5]",
        "evaluate.bootstrap=20",
    ]  # fmt: skip
    for verb in ("etl", "train", "evaluate"):
        done = recsys("-q", verb, "ratings.yaml", *config)
        assert done.code == 0, done.err

    page = (run_of() / "report.html").read_text()
    users = re.findall(r"<summary>User (#[0-9a-f]{8})\. History: (\d+) interactions", page)
    assert len(users) == 5
    assert all(int(rows) >= 4 for _, rows in users)  # four fifths of about 20 rows
    assert "<td></td><td>i" in page
    rankings = Rankings.read(run_of() / "rankings.safetensors")
    rows = {f"#{value:016x}"[:9]: row for row, value in enumerate(rankings.user_hashes)}
    found_of_them = sum(int(rankings.hits["model"][rows[name]].sum()) for name, _ in users)
    assert found_of_them > 0
    assert page.count("<td>rank ") == found_of_them  # what should be found is theirs
    found = recsys("inspect", "item", "i1", "--json").json["recommended"]["users"]
    assert all(one["user"].startswith("#") for one in found)


def test_titles_fit_every_terminal(evaluated):
    for draw, thing, name in ((shown.draw_user, "user", "ann"), (shown.draw_item, "item", "3")):
        found = evaluated("inspect", thing, name, "--json").json
        for width in (40, 60, 80, 120):
            words = "".join(drawn(draw, found, width).split())
            assert "andgoesonandon" in words or width < 72
            assert "1995" in words


def test_a_title_cannot_move_the_cursor():
    met = {"item": "1", "title": "a\x1b[2Jb\x07", "features": {}, "label": 1.0, "time": None, "split": "train"}
    found = {
        "run": "r", "user": "u", "features": {}, "label": "liked", "mean": None, "split": None, "rows": {"train": 1},
        "positive": {"train": 1}, "history": [met], "to_find": 0, "recommended": [], "notes": [],
    }  # fmt: skip
    text = drawn(shown.draw_user, found, 80)
    assert "\x1b" not in text
    assert "a\N{REPLACEMENT CHARACTER}[2Jb\N{REPLACEMENT CHARACTER}" in text


def test_the_report_shows_the_same_people_by_title_and_cannot_be_broken_by_one(evaluated):
    page = (run_of() / "report.html").read_text()

    assert "<summary>User ann. " in page
    assert "<summary>User cem. " in page
    assert "Toy Story (1995)" in page
    assert "Comedy, Children" in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<script" not in page
