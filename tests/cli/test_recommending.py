"""`recsys recommend`, `score` and `export` as typed: tables, files, and what is wrong with a line."""

import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from recsys_cli.stages.export import FORMATS
from recsys_cli.workspace import TrainedRun, write_json
from tests.cli.conftest import copied, type_in, write_ratings
from tests.sealing import reseal

CONFIG = """
dataset: {name: files, interactions: ratings.csv, tables: {movies: movies.csv}}
split: {method: random, valid: 0.1, test: 0.1, seed: 1}
features:
  user: userId
  item: movieId
  label: label
  timestamp: timestamp
  ops:
    - {op: JoinExternal, table: movies, on: movieId, columns: [genre]}
    - {op: Categorify, columns: [userId, movieId, genre]}
    - {op: LambdaOp, expression: "rating > 3", output: label, dtype: int8}
model: {name: ease}
train: {device: cpu}
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A trained run on ratings of 20 movies with titles and genres."""
    folder = tmp_path_factory.mktemp("movies")
    movies = [f"{number},Film {number},{'comedy' if number % 2 else 'drama'}" for number in range(20)]
    (folder / "movies.csv").write_text("\n".join(["movieId,title,genre", *movies]) + "\n")
    rows = re.sub(r"\b[ui](\d+)", r"\1", write_ratings(folder).read_text())
    (folder / "ratings.csv").write_text(rows.replace("user_id", "userId").replace("item_id", "movieId"))
    (folder / "c.yaml").write_text(CONFIG)
    type_in(folder, ["-q", "etl", "c.yaml"], ["-q", "train"])
    return folder


@pytest.fixture
def trained(recsys, made, tmp_path):
    copied(made, tmp_path)
    return recsys


def test_a_user_a_history_and_an_item(trained):
    shown = trained("recommend", "--user", "4", "--k", "3", "--where", "genre == 'comedy'")
    assert shown.code == 0, shown.err
    assert "for user 4, ease: by the model" in shown.out
    assert "Film " in shown.out
    found = trained("--json", "recommend", "ease", "--history", "1, 3,999", "--k", "3").json
    assert (found["source"], found["num_seen"], len(found["items"])) == ("fold-in", 2, 3)
    assert found["note"] == "1 of 3 ids of the history are unknown: 999"
    assert found["items"][0]["because"]
    near = trained("--json", "recommend", "--similar-to", "film 7", "--k", "4").json
    assert near["item"]["title"] == "Film 7"
    assert len(near["items"]) == 4
    unknown = trained("recommend", "--user", "nobody")
    assert unknown.code == 0
    first, head = unknown.out.splitlines()[:2]
    assert first == "user nobody has no history of items in train: give item ids as the history"
    assert head == "for user nobody, ease: the most popular items instead"


def test_a_model_of_several_runs_names_the_run(trained):
    assert "runs of ease" not in trained("recommend", "ease", "--user", "4").err
    assert trained("-q", "train", "c.yaml", "model.regularization=7").code == 0
    made = max(Path("workspace/runs").glob("*/manifest.json"), key=lambda path: path.stat().st_mtime_ns)
    answer = trained("recommend", "ease", "--user", "4")
    assert f"run {made.parent.name}: the latest of 2 runs of ease, not evaluated" in answer.err


def test_files_for_all_users_for_some_and_for_new_ones(trained):
    Path("allowed.txt").write_text("movieId\n1\n2\n3\n")
    Path("users.csv").write_text("userId\n3\n1\n")
    Path("new.csv").write_text("userId,movieId\nanna,1\nanna,3\nbob,2\n")
    done = trained("--json", "recommend", "--all", "--k", "4", "--out", "all.parquet").json
    every = pq.read_table("all.parquet")
    assert done["rows"] == every.num_rows
    assert every.schema.names == ["user", "item", "title", "rank", "score", "source"]
    assert all(row["title"] == f"Film {row['item']}" for row in every.to_pylist())
    for user in (1, 5, 9):
        one = trained("--json", "recommend", "--user", str(user), "--k", "4").json
        rows = [row for row in every.to_pylist() if row["user"] == user]
        assert [row["item"] for row in rows] == [item["item"] for item in one["items"]]
        assert [row["rank"] for row in rows] == list(range(1, len(rows) + 1))
    assert trained("recommend", "--all", "--k", "4", "--explain", "--out", "why.parquet").code == 0
    why = pq.read_table("why.parquet")
    assert why.drop_columns("because") == every
    reasons = {(row["user"], row["item"]): row["because"] for row in why.to_pylist()}
    for user in (1, 5, 9):
        one = trained("--json", "recommend", "--user", str(user), "--k", "4").json
        assert ["; ".join(item["because"]) for item in one["items"]] == [
            reasons[user, item["item"]] for item in one["items"]
        ]
    assert any(reasons.values())
    assert trained("recommend", "--history", "new.csv", "--k", "2", "--explain", "--out", "new.csv.why.jsonl").code == 0
    assert '"because": "Film' in Path("new.csv.why.jsonl").read_text()
    few = ["--users", "users.csv", "--candidates", "allowed.txt", "--include-seen", "--out"]
    assert trained("recommend", *few, "some.csv").code == 0
    some = pa_csv.read_csv("some.csv").to_pydict()
    assert some["user"] == [3, 3, 3, 1, 1, 1]
    assert set(some["item"]) == {1, 2, 3}
    assert trained("recommend", *few, "diverse.csv", "--diversity", "0.5").code == 0
    assert trained("recommend", "--history", "new.csv", "--k", "2", "--out", "new.jsonl").code == 0
    lines = [json.loads(line) for line in Path("new.jsonl").read_text().splitlines()]
    assert [line["user"] for line in lines] == ["anna", "anna", "bob", "bob"]
    Path("odd.csv").write_text("userId,movieId\nanna,1\nanna,\nbob,777\nbob,2\n")
    odd = trained("recommend", "--history", "odd.csv", "--k", "2", "--out", "odd.jsonl")
    assert "2 interactions of the histories have items that are not in train" in odd.out
    assert all(line["title"] == f"Film {line['item']}" for line in lines)
    assert {line["item"] for line in lines if line["user"] == "anna"}.isdisjoint({1, 3})
    assert not list(Path().glob(".*.partial"))


def test_unknown_users_of_a_file_get_popularity(trained):
    Path("users.txt").write_text("3\nnobody\n1\n999\n")
    done = trained("recommend", "--users", "users.txt", "--k", "2", "--out", "some.csv")
    assert done.code == 0, done.err
    assert "2 users have the most popular items: they have no history of known items" in done.out
    rows = pa_csv.read_csv("some.csv").to_pylist()
    assert [(row["user"], row["source"]) for row in rows[::2]] == [
        ("3", "model"), ("1", "model"), ("nobody", "popularity"), ("999", "popularity"),
    ]  # fmt: skip
    one = trained("--json", "recommend", "--user", "nobody", "--k", "2").json
    assert [row["item"] for row in rows[4:6]] == [item["item"] for item in one["items"]]
    Path("numbers.txt").write_text("3\n999\n")
    made = trained("--json", "recommend", "--users", "numbers.txt", "--out", "numbers.parquet").json
    assert (made["users"], made["popular"]) == (2, 1)
    assert pq.read_schema("numbers.parquet").field("user").type == pa.int64()
    for text, code, message in (
        ("3\n1\n", 0, "3"), ("a,b\n3,1\n", 4, "no column userId; the columns are a, b"),
        ("userId,userId\n3,1\n", 4, "the header names userId twice"),
    ):  # fmt: skip
        Path("odd.csv").write_text(text)
        answer = trained("recommend", "--users", "odd.csv", "--force", "--k", "1", "--out", "odd.jsonl")
        assert (answer.code, message in (Path("odd.jsonl").read_text() if code == 0 else answer.err)) == (code, True)
    assert len(Path("odd.jsonl").read_text().splitlines()) == 2
    Path("strangers.txt").write_text("nobody\n999\n")
    refused = trained("recommend", "--users", "strangers.txt", "--out", "none.csv")
    assert refused.code == 2
    assert "none of the 2 users is in train: nobody, 999" in refused.err
    Path("new.csv").write_text("userId,movieId\nanna,1\nbob,777\n")
    made = trained("--json", "recommend", "--history", "new.csv", "--k", "1", "--out", "new.jsonl").json
    assert (made["popular"], made["why_popular"]) == (1, "they have no history of known items")
    sources = [json.loads(line)["source"] for line in Path("new.jsonl").read_text().splitlines()]
    assert sources == ["fold-in", "popularity"]


def test_ids_of_files_are_text_and_rare_items_are_no_history(recsys, tmp_path):
    rows = re.sub(r"\bi(\d+)", lambda found: f"0{found[1]}", write_ratings(tmp_path).read_text())
    Path("ratings.csv").write_text(
        rows.replace("user_id", "userId").replace("item_id", "movieId") + "lone,099,5,2000,x\nlone,098,5,2001,x\n"
    )
    movies = [f"0{number},Film {number},drama" for number in [*range(20), 98, 99]]
    Path("movies.csv").write_text("\n".join(["movieId,title,genre", *movies]) + "\n")
    rare = "{op: Categorify, columns: [userId, movieId, genre], freq_threshold: 2}"
    text = CONFIG.replace("{op: Categorify, columns: [userId, movieId, genre]}", rare).replace("valid: 0.1", "valid: 0")
    Path("c.yaml").write_text(text.replace("test: 0.1", "test: 0"))
    for line in (["etl", "c.yaml"], ["train"], ["export", "--out", "b"]):
        assert recsys("-q", *line).code == 0
    Path("some.csv").write_text("user,item\nu1,07\nu2,012\nlone,099\n")
    only = recsys("--json", "recommend", "--history", "07", "--k", "9", "--candidates", "some.csv").json["items"]
    assert {one["item"] for one in only} == {"012"}
    Path("users.csv").write_text("user\nu1\nu2\nlone\n")
    sources = {}
    for user in ("u1", "lone"):
        sources[user] = recsys("--json", "recommend", "--user", user).json["source"]
    made = recsys("recommend", "--users", "users.csv", "--exclude", "some.csv", "--out", "lists.csv")
    assert made.code == 0, made.err
    lists = pa_csv.read_csv("lists.csv", convert_options=pa_csv.ConvertOptions(column_types={"item": pa.string()}))
    assert not {"07", "012"} & set(lists["item"].to_pylist())
    found = dict(zip(lists["user"].to_pylist(), lists["source"].to_pylist(), strict=True))
    assert (sources, found["u1"], found["lone"]) == ({"u1": "model", "lone": "popularity"}, "model", "popularity")
    Path("rows.csv").write_text("userId,movieId\nu1,07\nu2,012\n")
    for source in ("ease", "b"):
        assert recsys("score", source, "rows.csv", "--out", f"{source}.parquet").code == 0
    assert pq.read_table("ease.parquet").equals(pq.read_table("b.parquet"))
    Path("h.csv").write_text("userId,movieId\nanna,07\nanna,012\n")
    assert recsys("--json", "recommend", "--history", "h.csv", "--out", "h.jsonl").json["popular"] == 0
    assert recsys("recommend", "--all", "--candidates", "h.txt", "--out", "none.csv").code == 4
    Path("h.txt").write_text("7\n12\n")
    nothing = recsys("recommend", "--all", "--candidates", "h.txt", "--exclude", "h.txt", "--out", "none.csv")
    assert "2 of 2 ids of the candidates are unknown: 7, 12" in nothing.err
    assert "2 of 2 ids of the excluded items are unknown: 7, 12" in nothing.err
    assert "31 users have no recommendations" in nothing.out


def test_scores_are_in_the_format_of_the_name(trained):
    Path("rows.csv").write_text("userId,movieId\n1,3\n2,4\n")
    for out in ("s.parquet", "s.csv", "s.jsonl"):
        assert trained("score", "ease", "rows.csv", "--out", out).code == 0
    expected = pq.read_table("s.parquet").column("score").to_pylist()
    assert pa_csv.read_csv("s.csv").column("score").to_pylist() == pytest.approx(expected)
    lines = [json.loads(line)["score"] for line in Path("s.jsonl").read_text().splitlines()]
    assert lines == pytest.approx(expected)


def test_a_path_below_new_folders_is_refused_and_makes_none(trained):
    Path("rows.csv").write_text("userId,movieId\n1,3\n2,4\n")
    wrong = ["--out", "no/such/x.csv"]
    commands = (["recommend", "--all", *wrong], ["score", "ease", "rows.csv", *wrong], ["export", "ease", *wrong],
                ["compare", "ease", "ease", "--html", wrong[1]], ["init", "rows.csv", "--out", "no/such/c.yaml"])  # fmt: skip
    for command in commands:
        refused = trained(*command)
        assert (refused.code, "no is no folder" in refused.err, Path("no").exists()) == (2, True, False), command
    assert trained("recommend", "--all", "--out", "no/x.csv").code == 0


def test_the_kind_of_a_score_is_shown(trained):
    Path("rows.csv").write_text("userId,movieId\n1,3\n2,4\n")
    assert (
        "2 scores (they order items, and are no predictions): scores.parquet"
        in trained("score", "ease", "rows.csv").out
    )
    assert "logit of a binary label" in trained("score", "--help").out


def test_the_formats_of_an_export_are_listed(trained, tmp_path, monkeypatch):
    shown = trained("export", "--help").out
    assert all(name in shown for name in FORMATS)
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    refused = trained("export", "--format", "foo")
    assert refused.code == 2
    assert "unknown format 'foo'" in refused.err
    assert "use bundle, onnx" in refused.err


ROWS = ((1, 3), (2, 4), (99, 5))


def test_a_bundle_answers_and_scores_as_the_run(trained):
    made = trained("--json", "export", "--out", "b").json
    assert made["verified_rows"] > 100
    card = Path("b/model_card.md").read_text()
    assert "| regularization | " in card
    assert "(chosen on train) |" in card
    assert " 0 parameters" not in card
    by_run, by_bundle = (
        trained("--json", "recommend", *source, "--user", "4", "--k", "5").json for source in ([], ["b"])
    )
    assert by_run["items"] == by_bundle["items"]
    pq.write_table(pa.table(dict(zip(("userId", "movieId"), zip(*ROWS, strict=True), strict=True))), "rows.parquet")
    Path("rows.jsonl").write_text("".join(f'{{"movieId": {item}, "userId": "{user}"}}\n' for user, item in ROWS))
    Path("rows.txt").write_text("userId;movieId;more\n" + "".join(f"{user};{item};1,5\n" for user, item in ROWS))
    found = []
    for source, rows in (("ease", "rows.parquet"), ("b", "rows.parquet"), ("b", "rows.jsonl"), ("b", "rows.txt")):
        assert trained("score", source, rows, "--out", "s.parquet", "--force").code == 0
        found.append(pq.read_table("s.parquet"))
    assert all(one.equals(found[0]) for one in found)
    Path("rows.txt").write_text("userId;more\n1;2\n")
    lacking = trained("score", "b", "rows.txt", "--force")
    assert (lacking.code, "no column movieId; the columns are userId, more" in lacking.err) == (4, True)
    Path("b/weights.safetensors").write_bytes(b"")
    damaged = trained("recommend", "b", "--user", "4")
    assert damaged.code == 4
    assert "weights.safetensors is damaged" in damaged.err


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        (["recommend"], 2, "nobody to recommend to"),
        (["recommend", "--all"], 2, "--all and --users need --out"),
        (["recommend", "--all", "--out", "recs.txt"], 2, "unknown format '.txt'"),
        (["recommend", "--user", "1", "--out", "recs.csv"], 2, "--out is for many users"),
        (["recommend", "--history", "1,2", "--out", "recs.csv"], 2, "is no file"),
        (["recommend", "--user", "1", "--where", "genres contains x"], 2, "did you mean genre"),
        (["recommend", "--similar-to", "Film"], 2, "several items match"),
        (["recommend", "--similar-to", "nothing"], 2, "unknown item 'nothing'"),
        (["recommend", "--user", "1", "--candidates", "none.parquet"], 4, "none.parquet: cannot read a table"),
        (["recommend", "nowhere", "--user", "1"], 3, "no run 'nowhere'"),
        (["score", "ease", "none.csv"], 4, "none.csv"),
        (["score", "ease", "ratings.csv", "--out", "scores.txt"], 2, "unknown format '.txt'"),
        (["export", "--format", "pickle"], 2, "unknown format 'pickle'"),
        (["export", "--out", "ratings.csv"], 2, "ratings.csv is a file"),
    ],
)
def test_a_wrong_line_says_what_is_wrong(line, code, message, trained):
    done = trained(*line)
    assert (done.code, message in done.err) == (code, True), done.err
    assert "hint: " in done.err


def test_rankings_below_popularity_are_announced_where_they_are_used(recsys):
    """Some items are chosen far more often; with the weights of ease turned around, the others come first."""
    rng = np.random.default_rng(1)
    chances = 1 / np.arange(1, 41) ** 2
    lists = (rng.choice(40, 5, replace=False, p=chances / chances.sum()) for _ in range(300))
    rows = [f"{user},{item},5,{user}" for user, items in enumerate(lists) for item in items]
    Path("ratings.csv").write_text("\n".join(["userId,movieId,rating,timestamp", *rows]) + "\n")
    Path("c.yaml").write_text(
        re.sub(r", tables: .*}|    - .*JoinExternal.*\n|, genre", "", CONFIG).replace("ratings.csv", "ratings.csv}")
    )
    for line in (("etl", "c.yaml"), ("train",), ("evaluate",)):
        done = recsys("--quiet", *line)
        assert done.code == 0, done.err
    assert "significantly worse" not in recsys("recommend", "--user", "4").err

    (run,) = Path("workspace/runs").iterdir()
    weights = next(run.glob("checkpoints/best*"))
    with safe_open(weights, framework="np") as file:
        metadata = file.metadata()
    turned = {name: -value if value.ndim == 2 else value for name, value in load_file(weights).items()}
    save_file(turned, weights, metadata=metadata)
    reseal(TrainedRun(run))
    assert recsys("-q", "evaluate", "--force").code == 0
    for line in (("recommend", "--user", "4"), ("export", "--out", "bundle"), ("recommend", "bundle", "--user", "4")):
        answer = recsys(*line)
        assert answer.code == 0, answer.err
        told = " ".join(answer.err.split())
        assert "significantly worse than those of popularity; recsys run CONFIG model.name=auto" in told

    write_json(TrainedRun(run).choice, {"candidates": []})  # as of auto, which is then no remedy
    assert recsys("-q", "evaluate", "--force").code == 0
    told = " ".join(recsys("recommend", "--user", "4").err.split())
    assert "popularity; valid preferred it, so the splits differ" in told
