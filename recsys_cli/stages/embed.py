"""`recsys embed`: the texts of items to vectors, in one Parquet file to join."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from recsys_cli.data.encoders import encoder, words
from recsys_cli.data.files import Files
from recsys_cli.data.options import FilesOptions
from recsys_cli.detect.profiles import Profile, profiles
from recsys_cli.detect.sampling import tables
from recsys_cli.errors import ConfigError, listed
from recsys_cli.etl.reading.reader import Reader
from recsys_cli.features.spec import is_list
from recsys_cli.stages.etl import digest
from recsys_cli.workspace import check_output, replacing

_ROWS, _LIST = 1_024, pa.list_(pa.string())


def embed(
    table: str, model: Path, *, item: str | None, columns: Sequence[str], output: Path, force: bool = True
) -> dict[str, Any]:
    """Write a `vector` of length 1 for each row of a table, null without known words, in bounded memory; return the manifest.

    The manifest has columns, counts and the digests of all files read; it is `recsys` in the metadata of the Parquet file.
    `item` None is the first column with another id in each row, no `columns` are all of text.
    """
    check_output(output, force=force)
    sample = tables([table])[0]
    key, names = _chosen(profiles(sample.rows), item, columns)
    raw = Files(FilesOptions.model_validate({"interactions": sample.options})).tables(Path())[0]
    reader = Reader(raw, (key, *names), ids=(key,), chunk_bytes=4 << 20)
    counts, items, without_text = Counter[str](), 0, 0
    for _, texts in _rows(reader):
        items, without_text = items + len(texts), without_text + texts.count("")
        counts.update(word for text in texts for word in words(text))
    with encoder(model, counts) as (encode, unknown), replacing(output) as partial:
        kind = pa.list_(pa.float32(), encode(["item"]).shape[1])
        files = [path for path in (model, *sorted(model.rglob("*")), *raw.files) if isinstance(path, Path)]
        made = {"item": key, "columns": names, "items": items, "without_text": without_text, **unknown}
        made |= {"dim": kind.list_size, "files": {str(path): digest(path) for path in files if path.is_file()}}
        schema = pa.schema([(key, reader.schema().field(key).type), ("vector", kind)], {"recsys": json.dumps(made)})
        with pq.ParquetWriter(partial, schema) as writer:
            for ids, texts in _rows(reader):
                sums = encode(texts).astype(np.float32)
                rows = [row / length if (length := np.linalg.norm(row)) else None for row in sums]
                writer.write_table(pa.table([ids, pa.array(rows, kind)], schema=schema))
    return made


def _chosen(found: Mapping[str, Profile], item: str | None, columns: Sequence[str]) -> tuple[str, list[str]]:
    """Return the columns of the ids and of the texts; by default all with words, no codes and addresses."""
    if unknown := [name for name in (item, *columns) if name is not None and name not in found]:
        raise ConfigError(f"no column {listed(unknown)}", hint=f"the columns are {listed(list(found))}")
    key = item or next((name for name, one in found.items() if one.is_key and one.may_be_id), None)
    texts = [name for name, one in found.items() if name != key and one.kind in {"text", "list"} and one.width is None]
    texts = [name for name in texts if found[name].time is None and (found[name].has_spaces or not found[name].is_key)]
    if key is None or not (columns or texts):
        raise ConfigError("no column of ids, or none of texts, is found", hint="name them with --item and --columns")
    return key, list(columns or texts)


def _rows(reader: Reader) -> Iterator[tuple[pa.ChunkedArray, list[str]]]:
    """Yield ids, and the columns of each item as one text."""
    for batch in reader.batches():
        for start in range(0, len(batch), _ROWS):
            part = batch.slice(start, _ROWS)
            columns = (pc.binary_join(one.cast(_LIST), " ") if is_list(one.type) else one for one in part.columns[1:])
            rows = zip(*(one.cast(pa.string()).to_pylist() for one in columns), strict=True)
            yield part[0], [" ".join(filter(None, row)).strip() for row in rows]
