"""`recsys init` on tables of different shape: what it proposes, or why it refuses."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsys_cli.config import RunConfig, load
from tests.cli.conftest import Recsys

ROWS = 600


def columns() -> dict[str, list[int]]:
    """Users who like the items of their own half, at increasing times."""
    rng = np.random.default_rng(3)
    users, items = rng.integers(0, 30, ROWS), rng.integers(0, 20, ROWS)
    return {
        "user": users.tolist(),
        "item": items.tolist(),
        "time": list(range(1_600_000_000, 1_600_000_000 + 60 * ROWS, 60)),
    }


def write(path: str, *, head: str | None, row: Callable[[int, int, int], str]) -> None:
    """Write a line per interaction."""
    table = columns()
    lines = [row(*one) for one in zip(table["user"], table["item"], table["time"], strict=True)]
    Path(path).write_text("\n".join([*([head] if head else []), *lines]) + "\n")


def proposed(recsys: Recsys, *files: str) -> RunConfig:
    """Return the config of `init --yes`, checked against the files by `validate`."""
    answer = recsys("init", *files, "--yes", "-o", "mine.yaml", "--force")
    assert answer.code == 0, answer.err
    checked = recsys("validate", "mine.yaml")
    assert checked.code == 0, checked.err
    return load(Path("mine.yaml"))


def prepares(recsys: Recsys) -> int:
    """Prepare the data of the config and return the number of rows."""
    answer = recsys("--json", "etl", "mine.yaml")
    assert answer.code == 0, answer.err
    return sum(answer.json["rows"].values())


def test_pairs_without_header_train_a_retrieval_model(recsys):
    write("pairs.tsv", head=None, row=lambda u, i, _: f"{-(2**60) - u}\t{i}")
    config = proposed(recsys, "pairs.tsv")
    assert (config.features.user, config.features.item, config.split.method) == ("user", "item", "random")
    assert config.model.name == "auto"
    assert 0 < prepares(recsys) < ROWS  # one row per pair


def test_colons_without_headers_join_the_item_table(recsys):
    write("ratings.dat", head=None, row=lambda u, i, t: f"{u + 1}::{i}::{1 + (u + i) % 5}::{t}")
    films = [f"{i}::Film {i}, The (1999)::{'Drama|War' if i % 2 else 'War'}\n" for i in range(20)]
    Path("movies.dat").write_text("".join(films))
    config = proposed(recsys, "ratings.dat", "movies.dat")
    assert [op.name for op in config.features.ops] == ["JoinExternal", "Categorify", "LambdaOp"]
    assert (config.split.method, config.features.timestamp) == ("temporal", "timestamp")
    assert prepares(recsys) == ROWS


def test_typed_headers_keep_their_names(recsys):
    head = "user_id:token\titem_id:token\trating:float"
    write("shop.inter", head=head, row=lambda u, i, _: f"u{u}\t{i}\t{1 + (u + i) % 5}")
    Path("shop.user").write_text("user_id:token\tage:float\n" + "".join(f"u{u}\t{20 + u}\n" for u in range(30)))
    config = proposed(recsys, "shop.inter", "shop.user")
    assert (config.features.user, config.features.item) == ("user_id:token", "item_id:token")
    assert [list(op.expressions.values()) for op in config.features.ops if op.expressions]
    assert prepares(recsys) == ROWS


def test_events_of_packed_json_lines_get_weights(recsys):
    kinds = ("view", "view", "cart", "purchase")
    table = columns()
    with gzip.open("shop.jsonl.gz", "wt") as lines:
        for row in range(ROWS):
            event = {"event_type": kinds[row % 4], "ts": table["time"][row] * 1_000, "product_id": table["item"][row]}
            lines.write(json.dumps({**event, "user_id": f"u{table['user'][row]}"}) + "\n")
    config = proposed(recsys, "shop.jsonl.gz")
    assert config.features.weight == "row_weight"
    weights = next(op.expressions["row_weight"] for op in config.features.ops if "row_weight" in op.expressions)
    assert '"cart", 3' in weights.replace("'", '"')
    assert '"purchase", 5' in weights.replace("'", '"')
    assert prepares(recsys) > 0


def test_counts_of_parquet_get_weights(recsys):
    table = columns()
    plays = [1 + (7 * row) % 90 for row in range(ROWS)]
    names = [f"The Artist {item}" for item in table["item"]]
    pq.write_table(pa.table({"user": table["user"], "artist": names, "plays": plays}), "plays.parquet")
    config = proposed(recsys, "plays.parquet")
    assert (config.features.item, config.features.weight) == ("artist", "row_weight")
    assert prepares(recsys) > 0


def test_sessions_take_the_place_of_users(recsys):
    write("visits.csv", head="session_id,item_id,when", row=lambda u, i, t: f"s{u},{i},{np.datetime64(t, 's')}Z")
    config = proposed(recsys, "visits.csv")
    assert (config.features.user, config.split.method) == ("session_id", "session")
    assert config.evaluate.fold_in_targets == 1
    assert [op.name for op in config.features.ops] == ["Deduplicate", "KCore", "Categorify", "LambdaOp"]
    assert prepares(recsys) > 0


def test_events_of_sessions_have_the_session_split_and_weights(recsys):
    kinds = ("clicks", "carts", "orders")
    rows = [f"{k // 5},{k * 7 % 15},{1_600_000_000_000 + k},{kinds[k % 4 % 3]}\n" for k in range(ROWS)]
    Path("t.csv").write_text("session,aid,ts,type\n" + "".join(rows))
    config = proposed(recsys, "t.csv")
    assert (config.split.method, config.features.weight) == ("session", "row_weight")
    assert prepares(recsys) > 0


def impressions(*, shown: int = 5) -> list[tuple[int, str, int, list[str]]]:
    """Return number, user, seconds and candidates of impressions."""
    rng = np.random.default_rng(6)
    return [
        (k, f"U{k % 30}", 1_600_000_000 + 600 * k,
         [f"N{item}-{int(rng.random() < 0.3)}" for item in rng.choice(40, shown, replace=False)])
        for k in range(120)
    ]  # fmt: skip


@pytest.mark.parametrize("shape", ["mind", "csv", "jsonl", "rows", "anonymous", "timeless"])
def test_impressions_are_ranked_among_their_candidates(recsys, shape):
    rows, name = impressions(), "t.jsonl" if shape == "jsonl" else "t.tsv" if shape == "mind" else "t.csv"
    lines: list[str] = []
    for number, user, second, candidates in rows:
        shown, moment = " ".join(candidates), f"{np.datetime64(second, 's').astype(object):%m/%d/%Y %I:%M:%S %p}"
        pairs = [candidate.rsplit("-", 1) for candidate in candidates]
        if shape == "mind":
            lines.append(f"{number}\t{user}\t{moment}\tN1 N2 N3\t{shown}")
        elif shape == "csv":
            lines.append(f"{user},{moment},{shown}")
        elif shape == "jsonl":
            lines.append(json.dumps({"request_id": number, "user": user, "at": second, "shown": candidates}))
        elif shape == "anonymous":
            lines += [f"{number},{item},{second},{click}" for item, click in pairs]
        else:
            time = "" if shape == "timeless" else f",{second}"
            lines += [f"{number},{user},{item},{click}{time}" for item, click in pairs]
    heads = {"csv": "uid,when,impressions", "rows": "impression_id,user_id,item_id,clicked,timestamp",
             "timeless": "impression_id,user_id,item_id,clicked", "anonymous": "search_id,item_id,timestamp,clicked"}  # fmt: skip
    Path(name).write_text("\n".join([*([heads[shape]] if shape in heads else []), *lines]) + "\n")
    Path("news.csv").write_text("news_id,kind\n" + "".join(f"N{item},k{item % 4}\n" for item in range(40)))
    config = proposed(recsys, name, "news.csv")
    assert config.features.impression is not None
    assert (config.split.method, config.model.name, len(config.features.joins)) == ("temporal", "deepfm", 1)
    assert prepares(recsys) == 5 * len(rows)


@pytest.mark.parametrize("shape", ["lines", "text", "parquet", "parquet of texts"])
def test_histories_become_a_row_per_item(recsys, shape):
    rng = np.random.default_rng(4)
    lists = [rng.integers(100, 140, size).tolist() for size in rng.integers(4, 9, 40)]
    if shape == "lines":
        Path("t.txt").write_text("".join(f"{user} {' '.join(map(str, items))}\n" for user, items in enumerate(lists)))
    elif shape == "text":
        rows = [f"u{user},{'|'.join(map(str, items))}\n" for user, items in enumerate(lists)]
        Path("t.csv").write_text("user_id,items\n" + "".join(rows))
    else:
        items = [[f"p{item}" for item in one] for one in lists] if "texts" in shape else lists
        pq.write_table(pa.table({"user_id": list(range(40)), "items": items}), "t.parquet")
    config = proposed(recsys, {"lines": "t.txt", "text": "t.csv"}.get(shape, "t.parquet"))
    assert (config.split.method, config.features.timestamp) == ("leave-last-out", "position")
    assert prepares(recsys) == sum(map(len, lists))
    assert recsys("train", "mine.yaml", "model.name=popularity").code == 0
    exported = recsys("export")
    assert "raw rows have equal scores by the run and by the export" in exported.out, exported.err
    assert "next: recsys recommend" in exported.out


def test_baskets_with_times_are_ordered_by_the_time(recsys):
    rng = np.random.default_rng(4)
    baskets = [(user, week, rng.integers(100, 140, 3).tolist()) for user in range(30) for week in range(5)]
    baskets = [baskets[row] for row in rng.permutation(len(baskets))]  # the rows of the file have no order
    rows = [f"u{user},{'|'.join(map(str, items))},{1_600_000_000 + week * 604_800}\n" for user, week, items in baskets]
    Path("t.csv").write_text("user_id,items,timestamp\n" + "".join(rows))
    config = proposed(recsys, "t.csv")
    assert (config.split.method, config.features.timestamp) == ("temporal", "timestamp")
    assert "position" not in Path("mine.yaml").read_text()
    assert prepares(recsys) == 3 * len(baskets)


def test_clicks_without_user_and_item_train_a_click_model(recsys):
    rng = np.random.default_rng(5)
    lines = [
        "\t".join([str(rng.integers(2)), str(rng.integers(5_000)), "" if row % 3 else str(rng.integers(90)),
                   *(f"{rng.integers(9 * column):08x}" for column in range(1, 12))])
        for row in range(ROWS)
    ]  # fmt: skip
    Path("clicks.tsv").write_text("\n".join(lines) + "\n")
    config = proposed(recsys, "clicks.tsv")
    assert (config.features.label, config.model.name) == ("label", "dlrm")
    assert [op.name for op in config.features.ops][-1] == "Categorify"
    assert prepares(recsys) == ROWS


@pytest.mark.parametrize("column", [lambda value: f"{value:.4f}", lambda value: str(int(1_000 * abs(value)))])
def test_clicks_of_numbers_alone_get_constants_for_user_and_item(recsys, column):
    rng = np.random.default_rng(6)
    numbers, labels, codes = rng.normal(size=(ROWS, 3)), rng.integers(0, 2, ROWS), rng.integers(0, 9, ROWS)
    rows = [[str(label), *map(column, own)] for label, own in zip(labels, numbers, strict=True)]
    Path("clicks.csv").write_text("".join(",".join(row) + "\n" for row in [["y", "a", "b", "c"], *rows]))
    coded = [[*row, str(code)] for row, code in zip(rows, codes, strict=True)]
    Path("coded.csv").write_text("".join(",".join(row) + "\n" for row in [["y", "a", "b", "c", "code"], *coded]))
    for table, user in (("clicks.csv", "no_user"), ("coded.csv", "code")):
        config = proposed(recsys, table)
        assert (config.features.user, config.features.item, config.features.label) == (user, "no_item", "y")
        assert next(op for op in config.features.ops if op.name == "Normalize").reads == ("a", "b", "c")
        done = recsys("run", "mine.yaml", "train.epochs=1")
        assert "AUC" in done.out, done.err
        exported = recsys("export")
        assert "next: recsys score" in exported.out, exported.err
    assert recsys("train", "mine.yaml", "model.name=popularity").code == 0  # it ranks, but one item
    assert "next: recsys score" in recsys("export", "popularity").out


@pytest.mark.parametrize("values", [(0, 1), ("no", "yes")])
def test_a_table_of_numbers_without_a_known_name_is_told_of_its_label(recsys, values):
    rows = [f"{values[row % 2]},0.{row},1.{row},2.{row}" for row in range(40)]
    Path("t.csv").write_text("ctr,a,b,c\n" + "\n".join(rows))
    answer = recsys("init", "t.csv", "--yes")
    assert (answer.code, recsys("init", "t.csv", "--label", "ctr").code) == (2, 0)
    assert f"cannot guess the label column; set it with --label, such as ctr ({values[0]})" in answer.err
    assert "its columns are ctr, a, b, c; to predict one from the others: --label ctr" in answer.err
    assert "--user" not in answer.err
    Path("t.csv").write_text("ctr,a,b,c,age\n" + "\n".join(f"{row},30" for row in rows))
    assert "such as age (30)\n" in recsys("init", "t.csv", "--yes", "--force").err


@pytest.mark.parametrize("label", ["Outcome", "response", "purchase"])
def test_a_label_is_known_by_its_name(recsys, label):
    rows = "".join(f"{row % 2},0.{row},1.{row},2.{row}\n" for row in range(40))
    Path("t.csv").write_text(f"{label},a,b,c\n{rows}")
    assert proposed(recsys, "t.csv").features.label == label


def test_tables_with_keys_of_one_name_are_both_joined(recsys):
    write("plays.csv", head="user_id,item_id,when", row=lambda u, i, t: f"{u},{i},{t}")
    Path("users.csv").write_text("id,country\n" + "".join(f"{u},c{u % 3}\n" for u in range(30)))
    Path("items.csv").write_text("id,kind\n" + "".join(f"{i},k{i % 3}\n" for i in range(20)))
    config = proposed(recsys, "plays.csv", "users.csv", "items.csv")
    assert [op.joined_by for op in config.features.joins] == ["user_id", "item_id"]
    assert prepares(recsys) > 0


@pytest.mark.parametrize("rows", [1, 3])
def test_a_table_too_small_for_an_evaluation_is_refused_before_the_training(recsys, rows):
    Path("t.csv").write_text("user,item\n" + "1,5\n2,6\n1,6\n"[: 4 * rows])
    assert recsys("init", "t.csv", "--yes").code == 0
    answer = recsys("run", "t.yaml")
    assert answer.code == 2
    assert f"has {rows} rows of train and none of valid to evaluate on" in answer.err
    assert "add interactions" in answer.err
    assert not list(Path("workspace").glob("runs/*"))


def test_validate_names_repeated_keys_and_shares_of_nulls(recsys):
    write("plays.csv", head="user,item,age,rating", row=lambda u, i, t: f"{u},{i},{u if u % 3 else ''},{1 + i % 5}")
    Path("items.csv").write_text("item,kind\n" + "".join(f"{i},k{i % 3}\n" for i in range(20)))
    proposed(recsys, "plays.csv", "items.csv")
    ops = [
        "{op: JoinExternal, table: items, on: item, columns: [kind]}",
        "{op: Categorify, columns: [user, item, kind, age]}",
        "{op: LambdaOp, expression: rating > 3, output: label}",
    ]
    override = f"features.ops=[{', '.join(ops)}]"
    data = recsys("--json", "validate", "mine.yaml", override).json["data"]
    assert 0 < data["nulls"]["age"] < 1
    assert (data["matched"], data["rows"]) == ({"items": 1.0}, ROWS)
    with Path("items.csv").open("a") as lines:
        lines.write("3,again\n")
    answer = recsys("validate", "mine.yaml")
    assert answer.code == 4
    assert "duplicate keys in items.item: 3" in answer.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("user,item,rating\n", "no rows"),
        ("user,item\n" + "".join(f"a,{row % 9}\n" for row in range(50)), "have one user (a) in column user"),
        ("user,price\n" + "".join(f"{row % 9},{row / 7}\n" for row in range(50)), "set it with --item"),
    ],
)  # fmt: skip
def test_init_refuses_what_cannot_work(recsys, text, message):
    Path("t.csv").write_text(text)
    answer = recsys("init", "t.csv", "--yes")
    assert answer.code == 2
    assert message in answer.err
    assert not Path("t.yaml").exists()


def test_the_answer_has_a_reason_for_each_role(recsys):
    write("t.csv", head="user,item,rating", row=lambda u, i, _: f"{u},{i},{1 + (u + i) % 5}")
    understood = recsys("--json", "init", "t.csv", "--yes").json["understood"]
    assert [(one["role"], bool(one["reason"])) for one in understood] == [
        ("user", True),
        ("item", True),
        ("rating", True),
    ]


def test_vectors_are_features_and_no_categories(recsys):
    write("pairs.csv", head="user,item,rating", row=lambda u, i, _: f"{u},{i},{1 + (u + i) % 5}")
    vectors = np.random.default_rng(0).normal(size=(20, 3))
    uneven = [row[: 1 + at % 3].tolist() for at, row in enumerate(vectors)]
    pq.write_table(pa.table({"item": range(20), "vector": list(vectors), "uneven": uneven}), "items.parquet")
    config = proposed(recsys, "pairs.csv", "items.parquet")
    assert [op.columns for op in config.features.joins] == [("vector",)]
    assert config.features.categorified == ("user", "item")
    made = recsys("--json", "run", "mine.yaml", "train.epochs=1")
    assert made.code == 0, made.err
