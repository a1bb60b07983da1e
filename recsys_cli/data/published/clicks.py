"""Click logs of display ads: Criteo and Avazu."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from recsys_cli.data.published.description import Description, Download, Options, columns
from recsys_cli.data.source import RawTable

_NUMBERS = columns("int32", *(f"I{number}" for number in range(1, 14)), nullable=True)
_TOKENS = columns("string", *(f"C{number}" for number in range(1, 27)), nullable=True)
_CRITEO = (*columns("int32", "label"), *_NUMBERS, *_TOKENS)


def _criteo(file: str) -> RawTable:
    return RawTable("interactions", (Path(file),), _CRITEO, separator="\t", header=False, quote=None)


class Days(Options):
    """Days of the click logs."""

    days: tuple[Annotated[int, Field(ge=0, le=23)], ...] = Field(tuple(range(24)), min_length=1)
    """Days to read, 0 to 23, each about 180 million rows."""

    @property
    def parts(self) -> tuple[str, ...]:
        """The numbers of the days."""
        return tuple(str(day) for day in dict.fromkeys(self.days))


DESCRIPTIONS = (
    Description(
        name="criteo-kaggle",
        licence="Criteo, non-commercial",
        homepage="https://ailab.criteo.com/ressources/",
        downloads=(
            Download(
                "criteo-research-kaggle-display-advertising-challenge-dataset.tar.gz",
                "https://go.criteo.net/criteo-research-kaggle-display-advertising-challenge-dataset.tar.gz",
                members=("train.txt",),
            ),
        ),
        tables=(_criteo("train.txt"),),
        rows=45_840_617,
        size=4_576_820_670,
        notice="Criteo Display Advertising Challenge (2014): the terms of Criteo AI Lab apply.",
    ),
    Description(
        name="criteo-1tb",
        licence="CC BY-NC-SA 4.0",
        homepage="https://huggingface.co/datasets/criteo/CriteoClickLogs",
        downloads=(Download("day_{part}.gz"),),
        tables=(_criteo("day_{part}.gz"),),
        access="moved",
        steps="take the text files of the original release, such as day_0.gz; "
        "the publisher has the rows as Parquet now, for dataset.name=files",
        options=Days,
    ),
    Description(
        name="avazu",
        licence="Kaggle competition rules",
        homepage="https://www.kaggle.com/c/avazu-ctr-prediction/data",
        downloads=(Download("train.gz"),),
        tables=(
            RawTable(
                "interactions",
                (Path("train.gz"),),
                (
                    *columns("string", "id"),
                    *columns("int32", "click", "hour", "C1", "banner_pos"),
                    *columns("string", "site_id", "site_domain", "site_category", "app_id", "app_domain"),
                    *columns("string", "app_category", "device_id", "device_ip", "device_model"),
                    *columns("int32", "device_type", "device_conn_type", *(f"C{number}" for number in range(14, 22))),
                ),
            ),
        ),
        rows=40_428_967,
        access="login",
        steps="log in to Kaggle, accept the rules and take train.gz",
    ),
)
