"""Amazon 5-core of S3-Rec: lines `user item item …`, items in the order of time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from recsys_cli.data.digest import Digest
from recsys_cli.data.published.description import Description, Download, columns
from recsys_cli.data.published.rows import parsed, write_rows
from recsys_cli.data.source import RawTable
from recsys_cli.events import Emit

_SCHEMA = pa.schema([("user", pa.int32()), ("item", pa.int32()), ("position", pa.int32())])
_ADDRESS = "https://raw.githubusercontent.com/RUCAIBox/CIKM2020-S3Rec/master/data/"


def convert(folder: Path, files: Sequence[Path], emit: Emit) -> None:
    """Write one row per interaction, with its position in the user's history."""
    histories = parsed(files[0], _history, emit)
    rows = ((user, item, position) for user, *items in histories for position, item in enumerate(items))
    write_rows(folder / "interactions.parquet", _SCHEMA, rows)


def _history(line: str) -> list[int] | None:
    fields = line.split()
    return list(map(int, fields)) if len(fields) > 1 and all(map(str.isdecimal, fields)) else None


def _of(name: str, category: str, *, rows: int, digest: Digest | None = None) -> Description:
    return Description(
        name=f"amazon-5core-{name}",
        licence="on its page",
        homepage="https://github.com/RUCAIBox/CIKM2020-S3Rec",
        downloads=(Download(f"{category}.txt", f"{_ADDRESS}{category}.txt", digest=digest),),
        tables=(
            RawTable(
                "interactions",
                (Path("interactions.parquet"),),
                columns("int32", "user", "item", "position"),
                format="parquet",
            ),
        ),
        rows=rows,
        convert=convert,
        notice="Amazon reviews by McAuley et al. (2015), as prepared for S3-Rec by Zhou et al. (CIKM 2020).",
    )


DESCRIPTIONS = (
    _of("beauty", "Beauty", rows=198_502),
    _of("sports", "Sports_and_Outdoors", rows=296_337),
    _of(
        "toys",
        "Toys_and_Games",
        rows=167_597,
        digest=Digest("176c680c688d497598c4a89a03b402c0fe78d795e5db335c2e78dd5f2d778a3f", "sha256"),
    ),
)
