"""`recsys init` on the layouts of published tables: names, separators, lines of items, and several tables."""

import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsys_cli.config import RunConfig, load
from tests.cli.conftest import Recsys

ROWS = 400
BASKETS = ["citrus fruit", "whole milk", "yogurt", "soda", "rolls", "beer", "red wine", "butter", "pastry", "onions"]


def write(name: str, row: Callable[[int, int, int], str], head: str = "", rows: int = ROWS) -> None:
    """Write rows of 20 users and 15 items; `row` gets the row number, the user and the item."""
    lines = [row(k, k % 20, (7 * k + k // 20) % 15) for k in range(rows)]
    Path(name).parent.mkdir(exist_ok=True, parents=True)
    Path(name).write_text("\n".join([*([head] if head else []), *lines]) + "\n", encoding="latin-1")


def proposed(recsys: Recsys, *names: str) -> tuple[RunConfig, list[str]]:
    """Return the config of `init`, of which the data can be prepared, and its notes."""
    answer = recsys("--json", "init", *names, "--yes", "--force", "-o", "mine.yaml")
    assert answer.code == 0, answer.err
    prepared = recsys("etl", "mine.yaml")
    assert prepared.code == 0, prepared.err
    return load(Path("mine.yaml")), answer.json["notes"]


@pytest.mark.parametrize(
    ("head", "row", "user", "item"),
    [
        ("t_dat,customer_id,article_id,price", lambda k, u, i: f"2018-09-{1 + k // 20:02},{u:064x},0{i + 108},.05",
         "customer_id", "article_id"),
        ("User-ID,ISBN,Book-Rating", lambda k, u, i: f"{276725 + u},{f'034515{i:04}'},{k % 11}", "User-ID", "ISBN"),
        ("User-ID,ISBN,Book-Rating", lambda k, u, i: f"{276725 + u},{1_700_000_030 + i},{k % 11}", "User-ID", "ISBN"),
        ("userID,placeID,rating,food_rating", lambda k, u, i: f"U{u},{132825 + i},{k % 3},{k % 2}", "userID", "placeID"),
        ("userID,bookmarkID,tagID,day,year", lambda k, u, i: f"{u},{i},{k % 9},{1 + k % 28},2010", "userID", "bookmarkID"),
        ("Transaction,Item,date_time,period", lambda k, u, i: f"{k // 3},{BASKETS[i % 10]},{13 + k // 60}-10-2016 09:00,noon",
         "Transaction", "Item"),
        ("Member_number,Date,itemDescription", lambda k, u, i: f"{u},{1 + k % 28:02}-11-2015,{BASKETS[i % 10]}",
         "Member_number", "itemDescription"),
        ("Email,Created at,Lineitem sku", lambda k, u, i: f"u{u}@shop.com,2023-01-{1 + k % 28:02},SKU-{i}",
         "Email", "Lineitem sku"),
        ("N° client,Référence", lambda k, u, i: f"{u},R{i}", "N° client", "Référence"),
        ("user_id:token,item_id-count:float,item_id-list:token_seq",
         lambda k, u, i: f"{k},{4 + k % 3},{' '.join(str(100 + (i + 3 * n) % 17) for n in range(4 + k % 3))}",
         "user_id:token", "item_id-list:token_seq"),
    ],
)  # fmt: skip
def test_users_and_items_of_published_headers(recsys, head, row, user, item):
    write("t.csv", row, head)
    config, _ = proposed(recsys, "t.csv")
    assert (config.features.user, config.features.item) == (user, item)
    assert config.features.timestamp != "day"  # of the month


def test_one_of_two_columns_that_may_have_items_is_asked_for(recsys):
    write("t.csv", lambda k, u, i: f"{u},a{i},b{k % 9},{k % 5}", "user,first,second,rating")
    answer = recsys("init", "t.csv", "--yes")
    assert answer.code == 2
    assert "cannot guess the item column; set it with --item, such as first (a0), second (b0)" in answer.err


def test_answers_of_one_time_have_no_last_row(recsys):
    write(
        "t.csv",
        lambda k, u, i: f"{k // 8},a{k % 8},{1 + k % 5},{1672531200 + 60 * (k // 8)}",
        "user,item,rating,timestamp",
    )
    config, _ = proposed(recsys, "t.csv")
    assert config.split.method == "random"


def test_days_are_no_items(recsys):
    write(
        "t.csv",
        lambda k, u, i: f"{u},{20230101 + k % 28},{1672531200 + k}",
        "user_pseudo_id,event_date,event_timestamp",
    )
    answer = recsys("init", "t.csv", "--yes")
    assert answer.code == 2
    assert "cannot guess the item column" in answer.err


@pytest.mark.parametrize("head", ["", "  user   item  rating"])
def test_runs_of_spaces_separate(recsys, head):
    write("t.txt", lambda k, u, i: f"{u:>6}  {i:<5} {1 + k % 5:>3} ", head)
    config, _ = proposed(recsys, "t.txt")
    assert config.dataset.options["interactions"]["separator"] == r"\s+"
    assert (config.features.user, config.features.item) == ("user", "item")


@pytest.mark.parametrize("separator", [" ", ","])
def test_lines_of_items_are_baskets(recsys, separator):
    draw, names = random.Random(2), BASKETS if separator == "," else [str(item) for item in range(40)]
    lines = [draw.sample(names, draw.randint(1, 6)) for _ in range(300)]
    Path("t.csv").write_text("".join(separator.join(line) + "\n" for line in lines))
    config, _ = proposed(recsys, "t.csv")
    assert (config.features.user, config.features.item) == ("basket", "item")
    made = recsys("--json", "etl", "mine.yaml").json
    assert sum(made["rows"].values()) == sum(map(len, lines))
    assert made["vocabularies"]["basket"] == 300


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("abc\n1\n2\n", "the header needs at least two columns, and has one: 'abc'"),
        (
            "a,b,c\n"
            + "".join(
                f"{k % 4}," + "".join(f"{k + n / 7}," for n in range(1 + k % 3)) + f"{k / 3}\n" for k in range(30)
            ),
            "the lines have 3 to 5 columns",
        ),
    ],
)
def test_what_is_no_table_is_described(recsys, lines, message):
    Path("t.csv").write_text(lines)
    answer = recsys("init", "t.csv", "--yes")
    assert answer.code == 2
    assert message in answer.err


def movielens(*, users: int = 20) -> None:
    """Write the tables of MovieLens-1M and -100k, without headers."""
    write("ratings.dat", lambda k, u, i: f"{u + 1}::{i + 1}::{1 + k % 5}::{880_000_000 + 3_600 * k}")
    write("users.dat", lambda k, u, i: f"{k + 1}::{'MF'[k % 2]}::{18 + k % 40}::{k % 21}::{10_000 + 7 * k}", rows=users)
    write("movies.dat", lambda k, u, i: f"{k + 1}::Fílm number {k} (1999)::{'Drama|War'[: 5 + 4 * (k % 2)]}", rows=30)
    write("u.data", lambda k, u, i: f"{u + 1}\t{i + 1}\t{1 + k % 5}\t{880_000_000 + 3_600 * k}")
    write(
        "u.item", lambda k, u, i: f"{k + 1}|Fílm {k} (1999)|01-Jan-1995||http://imdb.com/{k}{f'|{k % 2}' * 18}", rows=30
    )
    write("u.user", lambda k, u, i: f"{k + 1}|{20 + k}|{'MF'[k % 2]}|student|{10_000 + k}", rows=30)


@pytest.mark.parametrize("names", [("ratings.dat", "users.dat", "movies.dat"), ("u.data", "u.item", "u.user")])
def test_tables_without_headers_are_joined_with_titles(recsys, names):
    movielens(users=1_000)  # more users than ratings
    config, _ = proposed(recsys, *names)
    assert config.dataset.options["interactions"]["files"] == names[0]
    assert sorted(op.joined_by for op in config.features.joins) == ["item", "user"]
    assert config.evaluate.title == "title"


def test_ratings_without_a_header_may_be_negative(recsys):
    write("jester.dat", lambda k, u, i: f"{u}\t\t{i}\t\t{(k * 37 % 199) / 10 - 9.95:.2f}")
    config, _ = proposed(recsys, "jester.dat")
    assert "rating > 0" in str(config.features.ops)


def test_headings_of_items_are_described(recsys):
    rows = "".join(f"{u},{1 + u % 5},2005-09-06\n" for u in range(20))
    Path("combined.txt").write_text("".join(f"{i}:\n{rows}" for i in range(1, 9)))
    answer = recsys("init", "combined.txt", "--yes")
    assert answer.code == 2
    assert "lines such as 1: name the item" in answer.err


def test_a_table_of_sessions_is_no_table_of_items(recsys):
    write("order_products.csv", lambda k, u, i: f"{k // 4},{i},{k % 4}", "order_id,product_id,add_to_cart_order")
    write("orders.csv", lambda k, u, i: f"{k},{k % 7},{k % 24}", "order_id,user_id,hour", rows=100)
    config, notes = proposed(recsys, "order_products.csv", "orders.csv")
    assert config.features.joins == ()
    assert any("orders.csv) is not used" in note for note in notes)


def test_tables_without_headers_are_no_parts_of_one(recsys):
    write("plays.csv", lambda k, u, i: f"{u},{i},{k % 5}")
    write("names.csv", lambda k, u, i: f"{k},{1980 + k},Dinosaur planet {k}", rows=15)
    config, _ = proposed(recsys, "plays.csv", "names.csv")
    assert config.evaluate.title == "title"


def test_titles_that_recur_are_titles(recsys):
    movielens()
    write(
        "movies.dat", lambda k, u, i: f"{k + 1:07}::Help{' me'[:k]} {k % 27}::{'Art|War'[: 3 + 4 * (k % 2)]}", rows=30
    )
    write("ratings.dat", lambda k, u, i: f"{u + 1}::{i + 1:07}::{k % 11}::{880_000_000 + 3_600 * k}")
    config, _ = proposed(recsys, "ratings.dat", "movies.dat")
    assert config.evaluate.title == "title"
    assert config.dataset.options["tables"]["movies"]["names"] == ["item", "title", "movies_column3"]


def test_own_texts_of_items_are_titles_whatever_their_name(recsys):
    write("plays.csv", lambda k, u, i: f"{u},{i},{1_600_000_000 + 60 * k}", "user_id,anime_id,time")
    write("anime.csv", lambda k, u, i: f"{k},https://a.b/{k},Show {k},k{k % 4}", "anime_id,page,romaji,kind", rows=15)
    config, _ = proposed(recsys, "plays.csv", "anime.csv")
    assert config.evaluate.title == "romaji"


def test_a_table_without_header_is_joined_to_a_parquet_file(recsys):
    movielens()
    rows = [(k % 20 + 1, (7 * k + k // 20) % 15 + 1, 1 + k % 5) for k in range(ROWS)]
    users, items, ratings = (list(one) for one in zip(*rows, strict=True))
    pq.write_table(pa.table({"userId": users, "movieId": items, "rating": ratings}), "ratings.parquet")
    config, notes = proposed(recsys, "ratings.parquet", "movies.dat")
    assert [op.joined_by for op in config.features.joins] == ["movieId"]
    assert not any("not used" in note for note in notes)


def test_several_tables_of_one_key_and_columns_of_one_name_are_joined(recsys):
    write("plays.csv", lambda k, u, i: f"{u},{i},{1_600_000_000 + 60 * k},{k / 8}", "user_id,item_id,time,price")
    write("users.csv", lambda k, u, i: f"{k},User {k},c{k % 3}", "user_id,name,kind", rows=20)
    write("items.csv", lambda k, u, i: f"{k},Item {k},k{k % 4}", "item_id,name,kind", rows=15)
    write("stock.csv", lambda k, u, i: f"{k},{k % 5}", "item_id,stock", rows=15)
    write("prices.csv", lambda k, u, i: f"{k},{k / 4}", "item_id,price", rows=15)
    config, notes = proposed(recsys, "plays.csv", "users.csv", "items.csv", "stock.csv", "prices.csv")
    joined = {op.table: op.columns for op in config.features.joins}
    assert sorted(joined) == ["items", "prices", "stock", "users"]
    assert joined["prices"] == ("price",)  # that of the plays is no feature of a ranking
    kinds = sorted(name for columns in joined.values() for name in columns if "kind" in name)
    assert kinds in (["items_kind", "kind"], ["kind", "users_kind"])
    assert not any("not used" in note for note in notes)
    assert "name" in str(config.evaluate.title)


def test_a_folder_as_published_has_given_splits_and_documents(recsys):
    for split, rows in (("train", 400), ("valid", 60), ("test", 40)):
        head = "user_id,item_id,rating,time"
        write(f"pub/{split}.csv", lambda k, u, i: f"{u},{i},{1 + k % 5},{1_600_000_000 + k}", head, rows)
    Path("pub/README.md").write_text("# Data\n\nTitle, and text\n")
    Path("pub/LICENSE").write_text("MIT License\n\nCopyright, all\n")
    config, notes = proposed(recsys, "pub")
    assert config.split.model_dump() == {
        "method": "files", "train": "pub/train.csv", "valid": "pub/valid.csv", "test": "pub/test.csv",
    }  # fmt: skip
    assert recsys("--json", "etl", "mine.yaml").json["rows"] == {"train": 400, "valid": 60, "test": 40}
    assert not any("not used" in note or "left out" in note for note in notes)


def test_folds_beside_their_table_do_not_repeat_its_rows(recsys):
    for name, rows in (("u.data", 400), ("u1.base", 300), ("u1.test", 100), ("ua.base", 300), ("ua.test", 100)):
        write(f"ml/{name}", lambda k, u, i: f"{u}\t{i}\t{1 + k % 5}\t{1_600_000_000 + k}", rows=rows)
    Path("ml/README").write_text("hello\n")
    Path("ml/u.occupation").write_text("artist\nwriter\n")
    config, notes = proposed(recsys, "ml")
    assert config.dataset.options["interactions"]["files"] == "ml/u.data"
    assert "u: files of its splits are left out, because they repeat its rows: ml/u1.base" in "".join(notes)
    assert any(note.startswith("ml/u.occupation is left out: the header needs at least two columns") for note in notes)


def test_an_unused_table_says_which_key_it_lacks(recsys):
    write("plays.csv", lambda k, u, i: f"{u},{i},{1_600_000_000 + 60 * k}", "user_id,item_id,time")
    write("shops.csv", lambda k, u, i: f"S{k},c{k % 3}", "shop_id,city", rows=20)
    write("log.csv", lambda k, u, i: f"c{k % 3},{k % 2}", "city,level", rows=20)
    _, notes = proposed(recsys, "plays.csv", "shops.csv", "log.csv")
    assert [note.partition("not used: ")[2] for note in notes if "not used" in note] == [
        "its column shop_id has few of the users (user_id) or items (item_id) of plays",
        "no column has another id in each row, as a table of users (user_id) or items (item_id) has",
    ]


def test_interactions_below_their_item_are_refused_beside_titles(recsys):
    Path("data").mkdir()
    ratings = [f"{user},{1 + (user + film) % 5},2005-01-{10 + film % 9}" for film in range(9) for user in range(30)]
    for film in range(9):
        Path(f"data/mv_{film}.txt").write_text("\n".join([f"{film}:", *ratings[30 * film : 30 * film + 30]]) + "\n")
    titles = [f"{k},{1940 + k % 60},Film No {k * k}{', Part Two' if k % 4 == 0 else ''}" for k in range(99)]
    Path("data/movie_titles.txt").write_text("\n".join(titles) + "\n")
    refused = recsys("init", "data", "--yes")
    assert refused.code == 2
    assert "lines such as 0: name the item of the lines below" in refused.err
    lines = [f"{film},{line}" for film in range(9) for line in ratings[30 * film : 30 * film + 30]]
    for path in Path("data").glob("mv_*"):
        path.unlink()
    Path("data/ratings.csv").write_text("\n".join(["movie,user,rating,date", *lines]) + "\n")
    answer = recsys("init", "data", "--yes")
    assert "movie_titles.txt is left out: the lines have 3 to 4 columns with the separator ','" in answer.out
    assert "joined" not in answer.out


@pytest.mark.parametrize("kind", ["class", "title", "lists"])
def test_the_only_column_left_or_the_only_list_is_the_item(recsys, kind):
    numbers = range(400)
    if kind != "lists":
        rows = {
            "member": [number % 50 for number in numbers], kind: [f"c{number * 7 % 30}" for number in numbers],
            "stars": [1 + number % 5 for number in numbers], "at": [1_700_000_000 + number for number in numbers],
        }  # fmt: skip
    else:
        rows = {"reader": list(numbers), "borrowed": [[number % 30, number % 7, number % 11] for number in numbers]}
    pq.write_table(pa.table(rows), "t.parquet")
    assert recsys("init", "t.parquet", "--yes").code == 0
    assert load(Path("t.yaml")).features.item == list(rows)[1]
