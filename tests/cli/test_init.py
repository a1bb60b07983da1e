"""`recsys init` writes a valid, runnable config for tables with various headers."""

from pathlib import Path

import pytest

from recsys_cli.config import load


def test_init_guesses_the_columns_and_the_result_is_prepared(recsys, ratings):
    answer = recsys("init", ratings)
    assert answer.code == 0
    assert "next: recsys run ratings.yaml" in answer.out
    config = load(Path("ratings.yaml"))
    assert (config.features.user, config.features.item, config.features.timestamp) == (
        "user_id",
        "item_id",
        "timestamp",
    )
    assert [text for op in config.features.ops for text in op.expressions.values()] == ["rating > 3"]
    assert config.split.method == "temporal"
    assert "# Unused columns: device." in Path("ratings.yaml").read_text()
    assert recsys("etl", "ratings.yaml").code == 0


@pytest.mark.parametrize(
    ("header", "first", "user", "item", "label"),
    [
        ("userId,movieId,rating", "1,2,3.5", "userId", "movieId", "label"),
        ("User ID\tProduct ID\tclick", "a\tb\t1", "User ID", "Product ID", "click"),
        ("customer,sku,stars,liked", "a,b,4,1", "customer", "sku", "liked"),
    ],
)
def test_init_knows_usual_headings(recsys, header, first, user, item, label):
    name = "t.tsv" if "\t" in header else "t.csv"
    Path(name).write_text(f"{header}\n{first}\n")
    answer = recsys("init", name)
    assert answer.code == 0, answer.err
    features = load(Path("t.yaml")).features
    assert (features.user, features.item, features.label) == (user, item, label)


def test_init_says_where_titles_are_if_the_table_has_them(recsys):
    Path("t.csv").write_text("user,item,Title,label\na,b,A title,1\n")
    Path("u.csv").write_text("user,item,label\na,b,1\n")
    assert recsys("init", "t.csv").code == recsys("init", "u.csv").code == 0
    assert load(Path("t.yaml")).evaluate.title == "Title"
    assert load(Path("u.yaml")).evaluate.title is None


def test_init_names_the_features_without_which_the_model_ranks(recsys):
    """The branch belongs to a loan and the kind to a book: the kind alone leaves a ranking."""
    rows = [
        f"u{k % 20},{pow(7, k, 1_009) % 30},{'NS'[k % 3 % 2]},{int(pow(3, k, 1_009) % 3 > 0)},{1_600_000_000 + 60 * k}"
        for k in range(600)
    ]
    Path("loans.csv").write_text("\n".join(["user,item,branch,liked,time", *rows]) + "\n")
    Path("books.csv").write_text("item,kind\n" + "".join(f"{item},k{item % 4}\n" for item in range(30)))
    found = recsys("init", "loans.csv", "books.csv", "--label", "liked", "--task", "label", "--json").json["notes"]
    assert [note for note in found if "cannot rank" in note] == [
        "features of the interaction, not of its user or item: branch; with them the model scores rows but cannot rank the "
        "catalog; to rank, leave them out of features.ops"
    ]
    short = ("train.epochs=1", "train.device=cpu", "model.hidden_dims=[4]", "model.embedding_dim=2")
    ranks = recsys("run", "loans.yaml", *short)
    assert "the model needs branch; to rank, leave them out of features.ops" in " ".join(ranks.out.split()), ranks.err
    Path("loans.yaml").write_text(Path("loans.yaml").read_text().replace("branch, ", ""))
    ranks = recsys("run", "loans.yaml", *short)
    assert ranks.code == 0, ranks.err
    assert "No ranking" not in ranks.out


def test_init_says_nothing_of_rows_without_features_of_their_own(recsys, ratings):
    assert "cannot rank" not in recsys("init", ratings).out


def test_init_uses_given_columns(recsys):
    Path("t.csv").write_text("who,what,good,on,no: x\na,b,1,100,y\n")
    line = ["--user", "who", "--item", "what", "--label", "good", "--timestamp", "on", "-o", "mine.yaml"]
    assert recsys("init", "t.csv", *line).code == 0
    features = load(Path("mine.yaml")).features
    assert (features.user, features.item, features.label, features.timestamp) == ("who", "what", "good", "on")


def test_init_accepts_iso_dates_and_any_given_column(recsys):
    Path("t.csv").write_text("user,item,label,timestamp,when\na,b,1,2024-01-01,14.2.2024\n")
    assert recsys("init", "t.csv").code == 0
    assert load(Path("t.yaml")).features.timestamp == "timestamp"
    assert recsys("init", "t.csv", "--timestamp", "when", "--force").code == 0
    assert load(Path("t.yaml")).features.timestamp == "when"


def test_init_skips_a_time_of_unknown_format(recsys):
    Path("t.csv").write_text("user,item,label,timestamp\na,b,1,1/2/2024\n")
    assert recsys("init", "t.csv").code == 0
    assert load(Path("t.yaml")).features.timestamp is None
    assert load(Path("t.yaml")).split.method == "random"


def test_init_quotes_a_name_with_spaces_in_the_next_command(recsys):
    Path("my table.csv").write_text('user,item,label,"odd\nname"\na,b,1,x\n')
    answer = recsys("init", "my table.csv")
    assert "recsys run 'my table.yaml'" in answer.out
    assert recsys("validate", "my table.yaml").code == 0


def test_init_quotes_a_rating_with_spaces(recsys):
    Path("t.csv").write_text('user,item,"how ""good"" it\'s"\na,b,5\n')
    assert recsys("init", "t.csv", "--rating", 'how "good" it\'s').code == 0
    assert next(op.reads for op in load(Path("t.yaml")).features.ops if op.expressions) == ('how "good" it\'s',)


def test_init_reports_all_roles_it_cannot_guess(recsys):
    Path("t.csv").write_text("a,b\n1,2\n")
    answer = recsys("init", "t.csv")
    assert answer.code == 2
    for option in ("--user", "--item"):
        assert f"set it with {option}" in answer.err
    assert "hint: its columns are a, b" in answer.err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["none.csv"], "no file none.csv"),
        (["t.txt"], "columns (user, item) and no rows"),
        (["one.csv"], "the header needs at least two columns"),
        (["t.parquet"], "not a parquet file"),
        (["t.bin"], "not a text, Parquet or JSON lines table"),
        (["t.csv", "--user", "usr"], "--user usr: no such column (did you mean user?)"),
        (["t.csv", "--label", "when"], "the label column 'when' has to be numeric"),
    ],
)
def test_init_rejects_invalid_input(recsys, line, message):
    Path("t.csv").write_text("user,item,rating,when,how good\na,b,4,yesterday,5\n")
    Path("t.txt").write_text("user item\n")
    Path("one.csv").write_text("user\na\n")
    Path("t.parquet").write_text("no parquet")
    Path("t.bin").write_bytes(b"\0\1\2")
    answer = recsys("init", *line)
    assert answer.code == 2
    assert message in answer.err


def test_init_overwrites_only_with_force(recsys, ratings):
    Path("ratings.yaml").write_text("mine")
    answer = recsys("init", ratings)
    assert answer.code == 2
    assert "ratings.yaml already exists" in answer.err
    assert Path("ratings.yaml").read_text() == "mine"
    assert recsys("init", ratings, "--force").code == 0
