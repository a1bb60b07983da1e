"""Tables of different shape: `recsys init --yes`, then `recsys run`, against popularity or the base rate.

The tables come from MovieLens latest-small, MovieTweetings, Gowalla, Toys_and_Games of the S3-Rec files and planted worlds.

    python scripts/init_shapes.py --data /path/to/data [--out results.json] [SHAPE ...]
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
import zipfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from recsys_cli.data.planted import GENRES, PlantedWorld
from recsys_cli.data.synthetic import SyntheticOptions

DATA = Path("data")
PREDICTS = frozenset({"mlp", "dlrm", "dcn-v2", "deepfm"})


def movielens() -> pl.DataFrame:
    """Return the ratings of MovieLens latest-small."""
    with zipfile.ZipFile(DATA / "ml-latest-small.zip") as archive:
        return pl.read_csv(archive.read("ml-latest-small/ratings.csv"))


def popular(rows: pl.DataFrame, *, items: int = 3_000) -> pl.DataFrame:
    """Keep the rows of the most frequent items."""
    kept = rows["movieId"].value_counts(sort=True).head(items)["movieId"]
    return rows.filter(pl.col("movieId").is_in(kept.implode()))


def ratings_csv(folder: Path) -> list[str]:
    """CSV with a header, in a zip archive with item tables: ratings, movies, tags, links."""
    (folder / "ml.zip").write_bytes((DATA / "ml-latest-small.zip").read_bytes())
    return ["ml.zip"]


def ratings_colons(folder: Path) -> list[str]:
    """Text with `::`, without headers: ratings of planted users, items and their genres."""
    world, rows = planted(users=1_500, items=800, num_rows=90_000)
    columns = (rows["user"] + 1, world.movie_id[rows["item"]], rows["stars"], rows["time"])
    (folder / "ratings.dat").write_text("".join(f"{u}::{i}::{s}::{t}\n" for u, i, s, t in zip(*columns, strict=True)))
    genres = ["|".join(name for name, has in zip(GENRES, row, strict=False) if has) for row in world.has_genre]
    lines = [
        f"{item}::Title {item}, the ({year})::{names}\n"
        for item, year, names in zip(world.movie_id, world.released, genres, strict=True)
    ]
    (folder / "movies.dat").write_text("".join(lines), encoding="latin-1")
    return ["ratings.dat", "movies.dat"]


def planted(*, users: int, items: int, num_rows: int) -> tuple[PlantedWorld, dict[str, np.ndarray]]:
    """Return a planted world and its ratings."""
    world = PlantedWorld(
        SyntheticOptions(users=users, items=items, rows=num_rows, seed=7, dim=8, genres=8, years=3, activity=0.6)
    )
    parts = list(world.ratings())
    names = {"user": "user", "item": "item", "time": "timestamp"}
    rows = {name: np.concatenate([getattr(part, own) for part in parts]) for name, own in names.items()}
    return world, rows | {"stars": np.concatenate([part.half_stars for part in parts]) / 2}


def pairs_tsv(folder: Path) -> list[str]:
    """Pairs of negative 64-bit users and items, without header, time or rating."""
    rows = popular(movielens()).filter(pl.col("rating") > 3)
    rows = rows.select(-9_007_199_254_740_993 - pl.col("userId"), "movieId").sample(fraction=1, shuffle=True, seed=1)
    rows.write_csv(folder / "pairs.tsv", separator="\t", include_header=False)
    return ["pairs.tsv"]


def uuid_gz(folder: Path) -> list[str]:
    """Packed CSV in two files: UUIDs, texts as items, ISO times with a zone, duplicates."""
    rows = popular(movielens()).sort("timestamp")
    names = {user: str(uuid.uuid5(uuid.NAMESPACE_OID, str(user))) for user in rows["userId"].unique()}
    rows = rows.select(
        pl.col("userId").replace_strict(names).alias("customer_uuid"),
        ("sku-" + pl.col("movieId").cast(pl.String)).alias("productId"),
        (pl.from_epoch("timestamp").dt.strftime("%Y-%m-%dT%H:%M:%S") + "+02:00").alias("createdAt"),
    )
    rows = pl.concat([rows, rows.head(500)])
    half = len(rows) // 2
    for number, part in enumerate((rows.head(half), rows.slice(half))):
        (folder / f"clicks-{number}.csv.gz").write_bytes(gzip.compress(part.write_csv().encode()))
    return ["clicks-*.csv.gz"]


def recbole(folder: Path) -> list[str]:
    """Typed headers of RecBole: .inter and .item."""
    world, rows = planted(users=1_000, items=600, num_rows=60_000)
    columns = (rows["user"], world.movie_id[rows["item"]], rows["time"])
    lines = [f"u{u}\t{i}\t{t}.0\n" for u, i, t in zip(*columns, strict=True)]
    (folder / "shop.inter").write_text("user_id:token\titem_id:token\ttimestamp:float\n" + "".join(lines))
    kinds = [" ".join(name for name, has in zip(GENRES, row, strict=False) if has) for row in world.has_genre]
    lines = [
        f"{item}\t{year}\t{kind}\n" for item, year, kind in zip(world.movie_id, world.released, kinds, strict=True)
    ]
    (folder / "shop.item").write_text("item_id:token\tyear:token\tclass:token_seq\n" + "".join(lines))
    return ["shop.inter", "shop.item"]


def events_jsonl(folder: Path) -> list[str]:
    """JSON lines with views, carts and purchases, times in ms."""
    rows = popular(movielens()).sort("timestamp")
    kind = {0: "view", 1: "cart", 2: "purchase"}
    with gzip.open(folder / "shop.jsonl.gz", "wt") as out:
        for user, item, rating, moment in rows.iter_rows():
            for level in range(1 + (rating >= 4) + (rating >= 5)):
                event = {
                    "event_time": moment * 1_000 + level,
                    "event_type": kind[level],
                    "product_id": item,
                    "user_id": user,
                }
                out.write(json.dumps(event) + "\n")
    return ["shop.jsonl.gz"]


def counts_parquet(folder: Path) -> list[str]:
    """Parquet with texts as ids and play counts, without a time."""
    rows = popular(movielens())
    rows = rows.select(
        ("user_" + pl.col("userId").cast(pl.String)).alias("user"),
        ("The Artist " + pl.col("movieId").cast(pl.String)).alias("artist"),
        (pl.col("rating") ** 3).round().cast(pl.Int64).alias("plays"),
    )
    rows.sample(fraction=1, shuffle=True, seed=2).write_parquet(folder / "plays.parquet")
    return ["plays.parquet"]


def sessions_csv(folder: Path) -> list[str]:
    """Sessions without users, as in yoochoose: no header, ISO times."""
    rows = popular(movielens()).sort("userId", "timestamp", maintain_order=True)
    rows = rows.with_columns((pl.int_range(pl.len()).over("userId") // 12).alias("part"))
    session = (pl.col("userId") * 1_000 + pl.col("part")).alias("session")
    times = pl.from_epoch("timestamp").dt.strftime("%Y-%m-%dT%H:%M:%S.000Z").alias("time")
    rows.select(
        session.alias("session_id"), times, pl.col("movieId").alias("item_id"), pl.lit("S").alias("category")
    ).write_csv(folder / "sessions.csv")
    return ["sessions.csv"]


def history_lines(folder: Path) -> list[str]:
    """Lines `user item item item` of Amazon toys: the first 6,000 users."""
    with (DATA / "s3rec" / "Toys_and_Games.txt").open() as lines:
        text = "".join(line for _, line in zip(range(6_000), lines, strict=False))
    (folder / "toys.txt").write_text(text)
    return ["toys.txt"]


def clicks_tsv(folder: Path) -> list[str]:
    """Click logs in Criteo's shape: no header, a label, 13 counts with nulls, 26 hashed categories."""
    rng = np.random.default_rng(5)
    size = 60_000
    sizes = rng.integers(5, 2_000, 26)
    categories = [(rng.zipf(1.3, size) % top).astype(np.int64) for top in sizes]
    numbers = [np.exp(rng.normal(1, 1.5, size)).astype(np.int64) for _ in range(13)]
    effects = [rng.normal(0, 0.7, top)[ids] for ids, top in zip(categories[:8], sizes, strict=False)]
    logit = -1.6 + sum(effects) + 0.4 * (np.log1p(numbers[0]) - 1.3) + 0.7 * effects[0] * effects[1]
    label = (rng.random(size) < 1 / (1 + np.exp(-logit))).astype(np.int64)
    missing = rng.random((13, size)) < 0.2
    with (folder / "clicks.tsv").open("w") as out:
        for row in range(size):
            counts = ["" if missing[k, row] else str(numbers[k][row]) for k in range(13)]
            codes = [f"{(int(ids[row]) * 2_654_435_761 + k) % 2**32:08x}" for k, ids in enumerate(categories)]
            out.write("\t".join([str(label[row]), *counts, *codes]) + "\n")
    return ["clicks.tsv"]


def impressions_tsv(folder: Path) -> list[str]:
    """Impressions and news in the shape of MIND: no headers, candidates `N1-1 N2-0`, times of 12 hours."""
    rng = np.random.default_rng(6)
    kinds, users, news = ("news", "sports", "finance", "music"), 400, 300
    taste, kind = rng.integers(0, 4, users), rng.integers(0, 4, news)
    with (folder / "news.tsv").open("w") as out:
        for item in range(news):
            name, sub = kinds[kind[item]], f"{kinds[kind[item]]}{rng.integers(5)}"
            out.write(
                f'N{item}\t{name}\t{sub}\tThe "big" story {item}\tAbstract {item}\thttps://x/{item}.html\t[]\t[]\n'
            )
    started = np.datetime64("2019-11-09T09:00:00")
    with (folder / "behaviors.tsv").open("w") as out:
        for number in range(4_000):
            user, shown = rng.integers(users), rng.choice(news, rng.integers(3, 15), replace=False)
            clicks = rng.random(len(shown)) < np.where(kind[shown] == taste[user], 0.5, 0.08)
            history = " ".join(f"N{item}" for item in rng.integers(0, news, rng.integers(0, 20)))
            moment = (started + np.timedelta64(150 * number, "s")).astype(object).strftime("%m/%d/%Y %I:%M:%S %p")
            candidates = " ".join(f"N{item}-{int(click)}" for item, click in zip(shown, clicks, strict=True))
            out.write(f"{number + 1}\tU{user}\t{moment}\t{history}\t{candidates}\n")
    return ["behaviors.tsv", "news.tsv"]


def movietweetings(folder: Path) -> list[str]:
    """Ratings 0 to 10 with `::` in a zip archive, with new users and films every day."""
    (folder / "tweets.zip").write_bytes((DATA / "movietweetings-100k.zip").read_bytes())
    return ["tweets.zip"]


def gowalla(folder: Path) -> list[str]:
    """Check-ins without header: repeated visits, ISO times, latitudes and longitudes."""
    (folder / "checkins.txt.gz").write_bytes((DATA / "gowalla-nyc.csv.gz").read_bytes())
    return ["checkins.txt.gz"]


USER, ITEM, STARS, TIME = (pl.col(name) for name in ("user", "item", "stars", "time"))
ROW = pl.int_range(pl.len())
INT, MOMENT = pl.Int64, pl.from_epoch("time")
RATING, THUMB = STARS.alias("rating"), STARS > 3
SESSION = (USER * 100 + TIME.rank("ordinal").over("user") // 10).alias("session_id")
PLAYS = (STARS**3).cast(INT).alias("plays")
EVENT = pl.when(STARS > 4).then(pl.lit("purchase")).when(STARS > 3).then(pl.lit("cart")).otherwise(pl.lit("view"))

# Columns of a planted table, by format; `bare` is without a header.
PLANTED: dict[str, tuple[str, list[pl.Expr]]] = {
    "stars": ("csv", [USER, ITEM, STARS.round().cast(INT).alias("rating"), TIME]),
    "stars_without_time": ("csv", [USER, ITEM, RATING]),
    "stars_first": ("parquet", [STARS.alias("stars"), TIME.alias("createdAt"), ITEM.alias("isbn"), USER.alias("reader")]),
    "stars_semicolons": ("semicolons", [USER, ITEM, STARS.round().cast(INT).alias("rating"), TIME]),
    "stars_bare_spaces": ("bare spaces", [USER, ITEM, STARS.round().cast(INT), TIME]),
    "half_stars_jsonl": ("jsonl", [USER, ITEM, RATING, TIME]),
    "half_stars_bare": ("bare csv", [USER, ITEM, STARS, TIME]),
    "half_stars_bare_bars": ("bare bars", [USER, ITEM, STARS, TIME]),
    "zero_to_ten": ("csv", [USER, ITEM, (2 * STARS).cast(INT).alias("score"), TIME]),
    "zero_to_ten_bare": ("bare tsv", [USER, ITEM, (2 * STARS).cast(INT), TIME]),
    "zero_to_ten_jsonl": ("jsonl", [USER, ITEM, (2 * STARS).cast(INT).alias("overall"), TIME]),
    "zero_to_three": ("tsv", [USER, ITEM, (STARS / 5 * 3).round().cast(INT).alias("rating"), TIME]),
    "not_rated": ("csv", [
        USER.alias("user_id"), ITEM.alias("anime_id"),
        pl.when(ROW % 6 == 0).then(-1).otherwise((2 * STARS).cast(INT)).alias("rating"),
    ]),
    "percents": ("csv", [USER, ITEM, (20 * STARS).cast(INT).alias("rating"), TIME]),
    "percents_parquet": ("parquet", [USER, ITEM, (20 * STARS).alias("rating"), MOMENT.alias("when")]),
    "label": ("csv", [USER, ITEM, THUMB.cast(pl.Int8).alias("label"), TIME]),
    "label_features": ("csv", [
        USER, ITEM, THUMB.cast(pl.Int8).alias("clicked"), TIME, (USER % 5).alias("device"), (TIME % 24).alias("hour"),
    ]),
    "label_in_words": ("csv", [USER, ITEM, pl.when(THUMB).then(pl.lit("yes")).otherwise(pl.lit("no")).alias("liked")]),
    "timeless_labels": ("parquet", [USER, ITEM, THUMB.cast(pl.Float64).alias("purchased")]),
    "thumbs": ("csv", [USER, ITEM, pl.when(THUMB).then(pl.lit("up")).otherwise(pl.lit("down")).alias("liked"), TIME]),
    "thumbs_jsonl": ("jsonl", [USER, ITEM, THUMB.alias("like"), TIME]),
    "thumbs_parquet": ("parquet", [USER, ITEM, THUMB.alias("liked"), MOMENT.alias("date")]),
    "pairs": ("csv", [USER.alias("customer_id"), ITEM.alias("article_id")]),
    "pairs_jsonl": ("jsonl", [USER.alias("customer_id"), ITEM.alias("article_id")]),
    "pairs_bare": ("bare csv", [USER, ITEM]),
    "pairs_and_times": ("csv", [TIME.alias("t_dat"), USER.alias("customer_id"), ITEM.alias("article_id")]),
    "times_ms": ("csv", [USER, ITEM, (TIME * 1_000).alias("timestamp")]),
    "times_us": ("parquet", [USER, ITEM, (TIME * 1_000_000).alias("timestamp")]),
    "times_iso": ("tsv", [USER, ITEM, MOMENT.dt.strftime("%Y-%m-%dT%H:%M:%S").alias("created_at")]),
    "times_with_zone": ("jsonl", [USER, ITEM, MOMENT.dt.strftime("%Y-%m-%d %H:%M:%S+02:00").alias("created_at")]),
    "dates": ("csv", [MOMENT.dt.strftime("%Y-%m-%d").alias("date"), USER, ITEM]),
    "positions": ("csv", [USER, ITEM, ROW.alias("position")]),
    "index": ("csv", [ROW.alias(""), USER, ITEM, RATING, TIME]),
    "float_ids": ("csv", [USER.cast(pl.Float64), ITEM.cast(pl.Float64), TIME]),
    "plays": ("csv", [USER, ITEM.alias("track"), PLAYS, TIME]),
    "plays_jsonl": ("jsonl", [USER, ITEM.alias("track"), PLAYS, TIME]),
    "plays_without_time": ("tsv", [USER, ITEM.alias("artist"), PLAYS]),
    "quantities": ("semicolons", [
        MOMENT.dt.strftime("%m/%d/%Y %H:%M").alias("InvoiceDate"), USER.alias("CustomerID"), ITEM.alias("StockCode"),
        PLAYS.alias("Quantity"),
    ]),
    "events": ("csv", [USER, ITEM, EVENT.alias("event"), MOMENT.dt.strftime("%Y-%m-%d %H:%M:%S").alias("event_time")]),
    "events_parquet": ("parquet", [USER, ITEM, EVENT.alias("event_name"), (TIME * 1_000).alias("ts")]),
    "events_bare": ("bare tsv", [USER, ITEM, EVENT.alias("event"), TIME]),
    "sessions": ("csv", [SESSION, ITEM, TIME]),
    "sessions_jsonl": ("jsonl", [SESSION.alias("session"), ITEM.alias("aid"), (TIME * 1_000).alias("ts")]),
    "sessions_bare": ("bare csv", [SESSION, MOMENT.dt.strftime("%Y-%m-%dT%H:%M:%S.000Z").alias("time"), ITEM]),
    "sessions_parquet": ("parquet", [("s" + SESSION.cast(pl.String)).alias("session_id"), ITEM, MOMENT.alias("time")]),
}  # fmt: skip
FORMATS = {
    "csv": (".csv", ","),
    "tsv": (".tsv", "\t"),
    "semicolons": (".csv", ";"),
    "bars": (".txt", "|"),
    "spaces": (".txt", " "),
}
"""Suffix and separator of text."""


def write(frame: pl.DataFrame, folder: Path, form: str) -> list[str]:
    """Write a table in a format."""
    if form in {"parquet", "jsonl"}:
        path = folder / f"t.{form}"
        (frame.write_parquet if form == "parquet" else frame.write_ndjson)(path)
    else:
        suffix, separator = FORMATS[form.removeprefix("bare ")]
        path = folder / f"t{suffix}"
        frame.write_csv(path, separator=separator, include_header=not form.startswith("bare "))
    return [path.name]


def write_planted(name: str, folder: Path) -> list[str]:
    """Write columns of planted ratings, whose popularity and tastes show in which items users rate."""
    _, rows = planted(users=500, items=300, num_rows=20_000)
    form, columns = PLANTED[name]
    return write(pl.DataFrame(rows).sort("time").select(columns), folder, form)


def repeats(folder: Path) -> list[str]:
    """Receipts: users buy the items of their taste again and again."""
    _, rows = planted(users=500, items=300, num_rows=12_000)
    once = pl.DataFrame(rows).select(USER.alias("customer_id"), ITEM.alias("product_id"), TIME.alias("order_date"))
    again = once.sample(fraction=0.7, seed=1).with_columns(pl.col("order_date") + 604_800)
    pl.concat([once, again]).sort("order_date").write_csv(folder / "orders.csv")
    return ["orders.csv"]


def history_lists(folder: Path, form: str = "jsonl") -> list[str]:
    """Users, each with a list of items in order; of text with blanks between."""
    _, rows = planted(users=500, items=300, num_rows=20_000)
    lists = pl.DataFrame(rows).sort("time").group_by("user", maintain_order=True).agg(ITEM.alias("items"))
    text = [] if form in {"jsonl", "parquet"} else [pl.col("items").cast(pl.List(pl.String)).list.join(" ")]
    return write(lists.with_columns(text), folder, form)


SHAPES: dict[str, Callable[[Path], list[str]]] = {
    make.__name__: make
    for make in (
        ratings_csv, ratings_colons, pairs_tsv, uuid_gz, recbole, events_jsonl, counts_parquet, sessions_csv, history_lines,
        clicks_tsv, impressions_tsv, movietweetings, gowalla, repeats, history_lists,
    )
}  # fmt: skip
SHAPES |= {f"history_lists_{form}": partial(history_lists, form=form) for form in ("parquet", "csv")}
SHAPES |= {name: partial(write_planted, name) for name in PLANTED}


def recsys(folder: Path, *line: str) -> dict:
    """Run a command in a folder and return its JSON."""
    environment = {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    command = [sys.executable, "-c", "from recsys_cli.cli import main; main()", *line, "--json"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"recsys {' '.join(line)}:\n{done.stderr[-3_000:]}")
    return json.loads(done.stdout)


def outcome(name: str, folder: Path) -> dict:
    """Return the task, the model and its metric against the baseline."""
    started = time.perf_counter()
    made = recsys(folder, "init", *SHAPES[name](folder), "--yes", "-o", "mine.yaml")
    evaluation = recsys(folder, "run", "mine.yaml")["evaluate"]
    own, other, metric = against(evaluation)
    return {
        "shape": name, "task": made["task"], "split": made["split"], "model": evaluation["model"], "metric": metric,
        "value": own, "baseline": other, "verdict": verdict(evaluation, own - other), "warning": evaluation["warning"],
        "seconds": round(time.perf_counter() - started, 1),
    }  # fmt: skip


def verdict(evaluation: dict, difference: float) -> str:
    """Return whether the rankings are above or below popularity, or level, by the evaluation; of predicted labels by value."""
    if evaluation["model"] in PREDICTS:
        return "above" if difference > 0 else "below"
    if evaluation["model"] == "popularity":
        return "is popularity"
    sentence = next((one for one in evaluation["verdict"] if one.startswith("By NDCG@10")), "")
    for word, where in (("better than", "above"), ("worse than", "below")):
        if (
            "popularity"
            in sentence.partition(f"significantly {word}")[2].partition(";")[0].partition("significantly")[0]
        ):
            return where
    return "level"


def against(evaluation: dict) -> tuple[float, float, str]:
    """Return metric of model and baseline: NDCG@10 and popularity, or for predicted labels AUC and item mean or base rate.

    The AUC is per impression if there are impressions.
    """
    rows = evaluation["pointwise"]
    if evaluation["model"] in PREDICTS:
        metric = "impression_auc" if "impression_auc" in rows["model"] else "auc"
        values = {system: figures[metric]["value"] for system, figures in rows.items()}
        others = [value for system, value in values.items() if system != "model"]
        return values["model"], max([0.5, *(value for value in others if value is not None)]), metric
    ranking = evaluation["ranking"]
    return ranking["model"]["ndcg@10"]["value"], ranking["popularity"]["ndcg@10"]["value"], "ndcg@10"


def main() -> None:
    """Run the shapes and print a table."""
    global DATA  # noqa: PLW0603 - one folder of a script
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shapes", nargs="*", metavar="SHAPE", help=", ".join(SHAPES))
    parser.add_argument("--data", type=Path, required=True, help="folder with the four public tables")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    DATA = options.data.resolve()
    results = []
    for name in options.shapes or SHAPES:
        with tempfile.TemporaryDirectory(prefix=f"{name}-") as folder:
            try:
                found = outcome(name, Path(folder))
            except RuntimeError as error:
                found = {"shape": name, "verdict": "failed", "error": str(error)}
        results.append(found)
        if options.out:
            options.out.write_text(json.dumps(results, indent=1) + "\n")
        print(
            "  ".join(
                f"{key} {value:.4f}" if isinstance(value, float) else f"{key} {value}" for key, value in found.items()
            ),
            flush=True,
        )
    print(dict(Counter(found["verdict"] for found in results)))


if __name__ == "__main__":
    main()
