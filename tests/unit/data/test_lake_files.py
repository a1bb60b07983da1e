"""Files of lakes: renamed, missing and constant columns, deleted rows, embedded schemas of newer writers."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField

from recsys_cli.data.lakes import DeltaSnapshot, IcebergSnapshot, column_type, rows_of
from recsys_cli.errors import DataError

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def test_rows_in_the_columns_of_the_table(tmp_path: Path) -> None:
    pq.write_table(pa.table({"col-1": pa.array([1, 2, 3], pa.int32()), "other": [7, 8, 9]}), tmp_path / "a.parquet")
    schema = pa.schema({"user": pa.int64(), "shop": pa.string(), "new": pa.float64()})
    with pq.ParquetFile(tmp_path / "a.parquet") as file:
        rows = rows_of(
            file, schema, stored={"user": "col-1"}, constants={"shop": "x"}, keep=pa.array([True, False, True])
        )
        found = pa.Table.from_batches(rows, schema)
    assert found.to_pylist() == [{"user": user, "shop": "x", "new": None} for user in (1, 3)]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("decimal(9, 2)", pa.decimal128(9, 2)),
        ("list<long>", pa.list_(pa.int64())),
        ("timestamptz", pa.timestamp("us")),
        ("struct<1: a: optional long>", None),
        ("list<struct<1: a: optional long>>", None),
    ],
)
def test_types_of_columns(name: str, kind: pa.DataType | None) -> None:
    assert column_type(name) == kind


def data_file(path: Path, content: DataFileContent, kind: FileFormat = FileFormat.PARQUET) -> DataFile:
    return DataFile.from_args(
        content=content, file_path=f"file://{path}", file_format=kind, partition=Record(),
        record_count=pq.read_metadata(path).num_rows, file_size_in_bytes=path.stat().st_size, column_sizes={},
        value_counts={}, null_value_counts={}, nan_value_counts={}, lower_bounds={}, upper_bounds={}, key_metadata=None,
        split_offsets=None, equality_ids=[1], sort_order_id=None,
    )  # fmt: skip


def deletion_vector(*rows: int) -> dict[str, object]:
    """Rows in the inline format of Delta: a serialized 64-bit roaring bitmap, in Z85."""
    bitmap = struct.pack("<iqIIIHHI", 1681511377, 1, 0, 12346, 1, 0, len(rows) - 1, 16) + struct.pack(
        f"<{len(rows)}H", *rows
    )
    text = ""
    for (word,) in struct.iter_unpack(">I", bitmap + bytes(-len(bitmap) % 4)):
        text += "".join(_Z85[word // 85**power % 85] for power in (4, 3, 2, 1, 0))
    return {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(bitmap), "cardinality": len(rows)}


def test_partition_values_and_deletion_vectors_of_delta(tmp_path: Path) -> None:
    shops = ["a/ü b%", "x=y", None]
    folder = tmp_path / "my table"
    deltalake.write_deltalake(folder, pa.table({"user": range(9), "shop": shops * 3}), partition_by=["shop"])
    log = next((folder / "_delta_log").glob("*.json"))
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if "protocol" in line:
            features = ["deletionVectors"]
            line["protocol"] = {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": features,
                "writerFeatures": features,
            }
        if "add" in line:
            line["add"]["deletionVector"] = deletion_vector(1)
    log.write_text("\n".join(map(json.dumps, lines)))
    schema, batches = DeltaSnapshot("interactions", str(folder), None).batches({})
    found = pa.Table.from_batches(batches, schema).sort_by("user")
    assert found.to_pylist() == [{"user": user, "shop": shops[user % 3]} for user in (0, 1, 2, 6, 7, 8)]


def test_files_of_iceberg_in_other_formats_are_named(tmp_path: Path) -> None:
    table = object.__new__(IcebergSnapshot)
    table.name, table.address = "interactions", "prod.shop.plays"
    pq.write_table(pa.table({"user": [1]}), tmp_path / "a.parquet")
    file = data_file(tmp_path / "a.parquet", DataFileContent.DATA, FileFormat.ORC)
    with pytest.raises(DataError, match=r"prod\.shop\.plays has ORC files, and only Parquet is supported"):
        list(table._rows(pa.schema({"user": pa.int64()}), {1: "user"}, [FileScanTask(file)]))


def test_deleted_rows_of_iceberg(tmp_path: Path) -> None:
    catalog = SqlCatalog(
        "test", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}",
        **{"py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO"},
    )  # fmt: skip
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", schema=Schema(NestedField(1, "user", LongType(), required=False)))
    with pytest.raises(DataError, match="has no snapshot yet"):
        IcebergSnapshot("interactions", f"{tmp_path}/n/t", None)
    pq.write_table(pa.table({"user": [1, 2, 3]}), tmp_path / "a.parquet")
    rows, others = f"file://{tmp_path}/a.parquet", "file:///elsewhere.parquet"
    pq.write_table(pa.table({"file_path": [rows, others, rows], "pos": [0, 1, 2]}), tmp_path / "d.parquet")
    file = data_file(tmp_path / "a.parquet", DataFileContent.DATA)
    file.spec_id = 0
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as snapshot:
        snapshot.append_data_file(file)
    catalog.engine.dispose()

    opened = IcebergSnapshot("interactions", f"{tmp_path}/n/t", None)
    schema = pa.schema({"user": pa.int64()})

    def read(kind: DataFileContent) -> list[int]:
        task = FileScanTask(file, delete_files={data_file(tmp_path / "d.parquet", kind)})
        return [user for batch in opened._rows(schema, {1: "user"}, [task]) for user in batch["user"].to_pylist()]

    assert read(DataFileContent.POSITION_DELETES) == [2]
    with pytest.raises(DataError, match="deletions by equality_deletes in PARQUET files, which are not supported"):
        read(DataFileContent.EQUALITY_DELETES)
