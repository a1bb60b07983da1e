"""Events of online shops: REES46, YooChoose and Retailrocket."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from recsys_cli.data.published.description import Description, Download, Options, columns, time
from recsys_cli.data.source import RawTable

Month = Literal["2019-Oct", "2019-Nov", "2019-Dec", "2020-Jan", "2020-Feb", "2020-Mar", "2020-Apr"]


class Months(Options):
    """Months of the events."""

    months: tuple[Month, ...] = Field(("2019-Oct", "2019-Nov"), min_length=1)
    """Months to read, from 2019-Oct to 2020-Apr; October has 42 million events, November 68 million."""

    @property
    def parts(self) -> tuple[str, ...]:
        """The months."""
        return tuple(dict.fromkeys(self.months))


DESCRIPTIONS = (
    Description(
        name="rees46",
        licence="free, with a link to REES46",
        homepage="https://www.kaggle.com/datasets/mkechinov/ecommerce-behavior-data-from-multi-category-store",
        downloads=(Download("{part}.csv.gz", "https://data.rees46.com/datasets/marketplace/{part}.csv.gz"),),
        tables=(
            RawTable(
                "interactions",
                (Path("{part}.csv.gz"),),
                (
                    time("event_time"),
                    *columns("string", "event_type"),
                    *columns("int64", "product_id", "category_id"),
                    *columns("string", "category_code", "brand", nullable=True),
                    *columns("float32", "price", nullable=True),
                    *columns("int64", "user_id"),
                    *columns("string", "user_session", nullable=True),
                ),
            ),
        ),
        options=Months,
        notice="REES46 Marketing Platform: name REES46 (rees46.com) as the source.",
    ),
    Description(
        name="yoochoose",
        licence="CC BY-NC-ND 4.0",
        homepage="https://www.kaggle.com/datasets/chadgostopp/recsys-challenge-2015",
        downloads=(Download("archive.zip", members=("yoochoose-clicks.dat", "yoochoose-buys.dat")),),
        tables=(
            RawTable(
                "interactions",
                (Path("yoochoose-clicks.dat"),),
                # "S" is a special offer, 0 is unknown, 1 to 12 are categories, and longer numbers brands.
                (
                    *columns("int32", "session"),
                    time("timestamp"),
                    *columns("int32", "item"),
                    *columns("string", "category"),
                ),
                header=False,
                quote=None,
            ),
            RawTable(
                "buys",
                (Path("yoochoose-buys.dat"),),
                # Price and quantity are 0 where unknown.
                (*columns("int32", "session"), time("timestamp"), *columns("int32", "item", "price", "quantity")),
                header=False,
                quote=None,
            ),
        ),
        rows=33_003_944,
        access="login",
        steps="log in to Kaggle and take the archive, or unpack yoochoose-data.7z (7z x) and pass its folder",
    ),
    Description(
        name="retailrocket",
        licence="CC BY-NC-SA 4.0",
        homepage="https://www.kaggle.com/datasets/retailrocket/ecommerce-dataset",
        downloads=(Download("archive.zip", members=("events.csv",)),),
        tables=(
            RawTable(
                "interactions",
                (Path("events.csv"),),
                (
                    time("timestamp", "ms"),
                    *columns("int32", "visitorid"),
                    *columns("string", "event"),
                    *columns("int32", "itemid"),
                    *columns("int32", "transactionid", nullable=True),
                ),
            ),
        ),
        rows=2_756_101,
        access="login",
        steps="log in to Kaggle and take the archive",
    ),
)
