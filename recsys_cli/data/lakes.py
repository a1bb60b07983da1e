"""Tables of lakes: the files of one version of a Delta or Iceberg table."""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq

from recsys_cli.data.copies import table_errors
from recsys_cli.data.databases import Calls
from recsys_cli.data.raw_files import is_url, open_parquet, without_protocol
from recsys_cli.data.selection import SinceValue, may_be_new
from recsys_cli.errors import DataError, MissingExtraError

_TIME = pa.timestamp("us")
_TYPES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(), "byte": pa.int8(), "short": pa.int16(), "int": pa.int32(), "integer": pa.int32(),
    "long": pa.int64(), "float": pa.float32(), "double": pa.float64(), "string": pa.string(), "binary": pa.binary(),
    "date": pa.date32(), "timestamp": _TIME, "timestamptz": _TIME, "timestamp_ntz": _TIME,
    "timestamp_ns": pa.timestamp("ns"), "timestamptz_ns": pa.timestamp("ns"),
}  # fmt: skip
_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)")


def column_type(name: str) -> pa.DataType | None:
    """Return the type of a column by its name in the table's metadata; times are in UTC without a zone.

    None for structs, maps and other types that no model reads; such columns are left out.
    """
    if (decimal := _DECIMAL.fullmatch(name)) is not None:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    if name.startswith("list<") and (inner := column_type(name[len("list<") : -1])) is not None:
        return pa.list_(inner)
    return _TYPES.get(name)


def rows_of(
    file: pq.ParquetFile,
    schema: pa.Schema,
    *,
    stored: Mapping[str, str],
    constants: Mapping[str, Any] = MappingProxyType({}),
    keep: pa.Array | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file in the columns of a schema; those neither stored nor constant are null, as added after the file.

    `stored` has the column of the file by that of the table, `keep` a mask of the rows that exist.
    """
    stored = {name: column for name, column in stored.items() if column in file.schema_arrow.names}
    first = 0
    # A file with none of the columns is read as a whole, for its number of rows.
    for batch in file.iter_batches(columns=list(dict.fromkeys(stored.values())) or None):
        columns = [
            batch.column(stored[field.name]).cast(field.type)
            if field.name in stored
            else pa.repeat(pa.scalar(constants.get(field.name), field.type), batch.num_rows)
            for field in schema
        ]
        rows = pa.record_batch(columns, schema=schema)
        yield rows if keep is None else rows.filter(keep.slice(first, batch.num_rows))
        first += batch.num_rows


class DeltaSnapshot:
    """One version of a Delta table.

    Attributes:
        address: Folder or URL; deltalake reads the credentials of its store from the environment.
    """

    def __init__(self, name: str, address: str, version: int | None) -> None:
        try:
            from deltalake import DeltaTable
        except ImportError as error:
            raise MissingExtraError.for_extra("lake", what=f"table {name!r}: a Delta table") from error
        self.name, self.address = name, address
        with table_errors(name):
            location = address if is_url(address) else str(Path(without_protocol(address)).absolute())
            self._table = DeltaTable(location, version=version)

    def identity(self) -> dict[str, object]:
        """Return address, version, and the id that a table keeps until it is created again."""
        return {"delta": self.address, "version": self._table.version(), "id": str(self._table.metadata().id)}

    def num_rows(self) -> int:
        """Return the number of rows, deleted ones included."""
        return sum(pa.table(self._table.get_add_actions())["num_records"].fill_null(0).to_pylist())

    def batches(self, since: Mapping[str, SinceValue]) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Return the schema and the rows, by commit and name of the file."""
        physical, types = {}, {}
        for field in json.loads(self._table.schema().to_json())["fields"]:
            kind = column_type(_type_name(field["type"]))
            if kind is not None:
                types[field["name"]] = kind
                physical[field["name"]] = field["metadata"].get("delta.columnMapping.physicalName", field["name"])
        schema = pa.schema(list(types.items()))
        return schema, self._rows(schema, physical, self._files(schema, physical, since))

    def _files(
        self, schema: pa.Schema, physical: dict[str, str], since: Mapping[str, SinceValue]
    ) -> list[dict[str, Any]]:
        """Return the files in order, each with its partition by column of the table."""
        actions = pa.table(self._table.get_add_actions()).to_pylist()
        files = []
        for action in actions:
            partition, top = (
                {name: values.get(name, values.get(physical[name])) for name in schema.names}
                for values in (action.get("partition") or {}, action.get("max") or {})
            )
            known = {name: value for name, value in partition.items() if value is not None}
            files.append({**action, "partition": partition, "top": top | known})
        files.sort(key=lambda file: (file["modification_time"], file["path"]))
        tops = {name: [file["top"][name] for file in files] for name in schema.names}
        new = may_be_new(self.name, since, tops, schema)
        return [file for file, is_new in zip(files, new, strict=True) if is_new]

    def _rows(
        self, schema: pa.Schema, physical: dict[str, str], files: list[dict[str, Any]]
    ) -> Iterator[pa.RecordBatch]:
        from deltalake.fs import DeltaStorageHandler

        table = self._table
        store = pa_fs.PyFileSystem(
            DeltaStorageHandler.from_table(table._table, None, table._table.get_add_file_sizes())
        )
        deleted = pa.RecordBatchReader._import_from_c_capsule(table.deletion_vectors().__arrow_c_stream__()).read_all()
        paths = set(pa.table(table.get_add_actions())["path"].to_pylist())
        masks = {self._path(url, paths): row for row, url in enumerate(deleted["filepath"].to_pylist())}
        for file in files:
            row = masks.get(file["path"])
            mask = None if row is None else deleted["selection_vector"][row].values
            with store.open_input_file(unquote(file["path"])) as source, open_parquet(source) as opened:
                yield from rows_of(opened, schema, stored=physical, constants=file["partition"], keep=mask)

    def _path(self, url: str, paths: Container[str]) -> str:
        """Return the path of a file in the log, for its URL."""
        parts = url.split("/")
        found = next((path for depth in range(len(parts)) if (path := "/".join(parts[depth:])) in paths), None)
        if found is None:
            raise DataError(
                f"table {self.name!r}: deleted rows of {url} cannot be assigned to a file of the table",
                hint="compact the table, so that it has no deletion vectors",
            )
        return found


def _type_name(kind: Any) -> str:
    if isinstance(kind, dict) and kind["type"] == "array":
        return f"list<{_type_name(kind['elementType'])}>"
    return kind if isinstance(kind, str) else str(kind["type"])


# pyiceberg's default takes newer releases of pyarrow than the core install.
_IO = {"py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO"}


class IcebergSnapshot:
    """One snapshot of an Iceberg table.

    Attributes:
        address: Metadata file, folder or URL of the table, or CATALOG.NAMESPACE.TABLE; the catalog's address and
            credentials are in ~/.pyiceberg.yaml or variables PYICEBERG_CATALOG__…
    """

    def __init__(self, name: str, address: str, version: int | None) -> None:
        try:
            from pyiceberg.catalog import load_catalog
            from pyiceberg.table import StaticTable
        except ImportError as error:
            raise MissingExtraError.for_extra("lake", what=f"table {name!r}: an Iceberg table") from error
        self.name, self.address = name, address
        with table_errors(name):
            if (location := _metadata(address)) is not None:
                self._table: Any = StaticTable.from_metadata(location, _IO)
            else:
                catalog, _, table = address.partition(".")
                self._table = Calls(name).wait(lambda: load_catalog(catalog, **_IO).load_table(table))
            snapshot = self._table.snapshot_by_id(version) if version is not None else self._table.current_snapshot()
        if snapshot is None:
            what = "no snapshot yet" if version is None else f"no snapshot {version}"
            raise DataError(f"table {name!r}: {address} has {what}", hint="write rows, or set another version")
        self._snapshot = int(snapshot.snapshot_id)

    def identity(self) -> dict[str, object]:
        """Return address, snapshot, and the id that a table keeps until it is created again."""
        return {"iceberg": self.address, "version": self._snapshot, "id": str(self._table.metadata.table_uuid)}

    def num_rows(self) -> int:
        """Return the number of rows, deleted ones included."""
        return sum(task.file.record_count for task in self._table.scan(snapshot_id=self._snapshot).plan_files())

    def batches(self, since: Mapping[str, SinceValue]) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Return the schema and the rows."""
        scan = self._table.scan(snapshot_id=self._snapshot)
        types = {field: column_type(str(field.field_type)) for field in scan.projection().fields}
        ids = {field.field_id: field.name for field, kind in types.items() if kind is not None}
        schema = pa.schema([(field.name, kind) for field, kind in types.items() if kind is not None])
        tasks = list(scan.plan_files())
        wanted = [field for field, kind in types.items() if kind is not None and field.name in since]
        tops = {field.name: [_greatest(task.file, field) for task in tasks] for field in wanted}
        new = may_be_new(self.name, since, tops, schema) or [True] * len(tasks)
        defaults = {ids[field.field_id]: field.initial_default for field in types if field.field_id in ids}
        chosen = [task for task, is_new in zip(tasks, new, strict=True) if is_new]
        return schema, self._rows(schema, ids, chosen, defaults)

    def _rows(
        self,
        schema: pa.Schema,
        ids: dict[int, str],
        tasks: list[Any],
        defaults: Mapping[str, Any] = MappingProxyType({}),
    ) -> Iterator[pa.RecordBatch]:
        for task in tasks:
            if task.file.file_format.name != "PARQUET":
                raise DataError(
                    f"table {self.name!r}: {self.address} has {task.file.file_format.name} files, and only Parquet is supported",
                    hint="write it anew with write.format.default=parquet, or export it to Parquet",
                )
            constants = {**defaults, **self._constants(task.file, ids)}
            with self._open(task.file.file_path) as source, open_parquet(source) as file:
                keep = self._kept(task, file.metadata.num_rows)
                yield from rows_of(file, schema, stored=_stored(file, ids), constants=constants, keep=keep)

    def _open(self, path: str) -> Any:
        return self._table.io.new_input(path).open()

    def _constants(self, file: Any, ids: dict[int, str]) -> dict[str, Any]:
        """Return the values of identity partitions, which imported files may lack."""
        spec = self._table.metadata.specs()[file.spec_id]
        return {
            ids[field.source_id]: file.partition[position]
            for position, field in enumerate(spec.fields)
            if str(field.transform) == "identity" and field.source_id in ids
        }

    def _kept(self, task: Any, rows: int) -> pa.Array | None:
        """Return which rows of a file are not deleted by position; None for all."""
        if not task.delete_files:
            return None
        keep = np.ones(rows, dtype=bool)
        for file in task.delete_files:
            if file.content.name != "POSITION_DELETES" or file.file_format.name != "PARQUET":
                raise DataError(
                    f"table {self.name!r}: {self.address} has deletions by {file.content.name.lower()} in "
                    f"{file.file_format.name} files, which are not supported",
                    hint="compact the table (rewrite_data_files), and run the command again",
                )
            with self._open(file.file_path) as source:
                deleted = pq.read_table(source, columns=["file_path", "pos"])
            of_file = np.asarray(deleted["file_path"].to_pylist(), dtype=object) == task.file.file_path
            keep[deleted["pos"].to_numpy()[of_file]] = False
        return pa.array(keep)


def _greatest(file: Any, field: Any) -> Any:
    """Return the upper bound of a file's column; None if unknown."""
    from pyiceberg.conversions import from_bytes

    bound = (file.upper_bounds or {}).get(field.field_id)
    return None if bound is None else from_bytes(field.field_type, bound)


def _metadata(address: str) -> str | None:
    """Return the newest metadata file of a folder, or the address of one; None for a table of a catalog."""
    if is_url(address):
        return address
    path = Path(without_protocol(address))
    if not path.is_dir():
        return str(path.absolute()) if path.suffix == ".json" or path.exists() else None
    files = list((path / "metadata").glob("*.metadata.json"))
    newest = max(files, key=lambda file: (_number(file.name), file.stat().st_mtime_ns), default=path)
    return str(newest.absolute())


def _number(name: str) -> int:
    """Return the number of a metadata file: 00002-UUID.metadata.json or v2.metadata.json."""
    digits = name.removeprefix("v").partition(".")[0].partition("-")[0]
    return int(digits) if digits.isdigit() else -1


def _stored(file: pq.ParquetFile, ids: dict[int, str]) -> dict[str, str]:
    """Return the file's columns by column of the table: by id, or by name in files without ids."""
    by_id = {int((field.metadata or {}).get(b"PARQUET:field_id", -1)): field.name for field in file.schema_arrow}
    if set(by_id) <= {-1}:
        return {name: name for name in ids.values()}
    return {name: by_id[number] for number, name in ids.items() if number in by_id}
