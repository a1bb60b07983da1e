"""The MovieLens recipe as a plain Polars script: what somebody would write by hand who knows which columns they need.

usage: polars_etl.py FOLDER OUT NUM_SHARDS

FOLDER holds ratings.csv and movies.csv. OUT gets the same prepared rows as `recsys etl configs/ml25m.yaml`: the same split,
ids, files, and order of rows, which is why the hash is taken from there. Everything is in memory at once.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import polars as pl

from recsys_cli.features.hashing import below, hash_counters, mix, permutation
from recsys_cli.features.split import RandomSplit

SEED = 42


def vocabulary(values: pl.Series) -> pl.DataFrame:
    """Return each value and its id: by count, then value, from 3 on."""
    counts = values.value_counts().sort("count", values.name, descending=[True, False])
    return counts.select(values.name).with_row_index("id", offset=3).with_columns(pl.col("id").cast(pl.Int32))


def encode(frame: pl.DataFrame, ids: pl.DataFrame) -> pl.DataFrame:
    """Replace a column by its ids; what train has not is 2."""
    name = ids.columns[1]
    joined = frame.join(ids, on=name, how="left", maintain_order="left")
    return joined.with_columns(pl.col("id").fill_null(2).alias(name)).drop("id")


def main() -> None:
    """Prepare the data."""
    folder, out, num_shards = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    types = {"userId": pl.Int32, "movieId": pl.Int32, "rating": pl.Float32, "timestamp": pl.Int64}
    ratings = pl.read_csv(folder / "ratings.csv", schema_overrides=types)
    movies = pl.read_csv(folder / "movies.csv", schema_overrides={"movieId": pl.Int32}).select("movieId", "genres")
    rows = np.arange(len(ratings), dtype=np.uint64)
    ratings = ratings.with_columns(
        (pl.col("rating") > 3).cast(pl.Int8).alias("label"),
        pl.Series("split", RandomSplit(valid=0.2, seed=SEED).assign_rows(rows)),
        pl.Series("shard", below(hash_counters(rows, mix(SEED, 2)), num_shards)),
    ).drop("rating")
    train, valid = ratings.filter(pl.col("split") == 0), ratings.filter(pl.col("split") == 1)

    users, items = vocabulary(train["userId"]), vocabulary(train["movieId"])
    genres = movies.with_columns(pl.col("genres").str.split("|")).explode("genres")
    genres = genres.filter(pl.col("genres") != "(no genres listed)")
    genre_ids = vocabulary(train.select("movieId").join(genres, on="movieId", how="inner")["genres"])
    of_movie = encode(genres, genre_ids).group_by("movieId", maintain_order=True).agg("genres")
    table = items.join(of_movie, on="movieId", how="left", maintain_order="left").select("genres")

    columns = ["userId", "movieId", "label", "timestamp"]
    for split, frame in (("train", train), ("valid", valid)):
        (out / split).mkdir(parents=True)
        encoded = encode(encode(frame, users), items)
        if split == "train":
            for (number,), part in encoded.partition_by("shard", as_dict=True).items():
                ordered = part.select(columns)[permutation(len(part), mix(SEED, 3, int(number)))]
                ordered.write_parquet(out / split / f"{int(number):05d}.parquet", compression="uncompressed")
        else:
            encoded.select(columns).write_parquet(out / split / "00000.parquet", compression="uncompressed")
    table.write_parquet(out / "movieId.parquet")
    for name, ids in (("userId", users), ("movieId", items), ("genres", genre_ids)):
        ids.select(pl.col(name).alias("value")).write_parquet(out / f"{name}-vocabulary.parquet")


if __name__ == "__main__":
    main()
