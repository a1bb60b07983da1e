"""Delta tables through `deltalake`: the files of one version, in the order of their commits."""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pa_fs

from recsys_cli.data import remote
from recsys_cli.data.copies import table_errors
from recsys_cli.data.lake_files import column_type, rows_of
from recsys_cli.data.parquet import open_parquet
from recsys_cli.data.since import SinceValue, may_be_new
from recsys_cli.errors import DataError, MissingExtraError


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
            location = address if remote.is_url(address) else str(Path(remote.without_protocol(address)).absolute())
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
