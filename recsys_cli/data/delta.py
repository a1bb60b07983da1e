"""Delta tables through `deltalake`: the files of one version, in the order of their commits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pa_fs

from recsys_cli.data import remote
from recsys_cli.data.copies import table_errors
from recsys_cli.data.lake_files import column_type, open_parquet, rows_of
from recsys_cli.errors import MissingExtraError


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
        self.address = address
        with table_errors(name):
            location = address if remote.is_url(address) else str(Path(remote.without_protocol(address)).absolute())
            self._table = DeltaTable(location, version=version)

    def identity(self) -> dict[str, object]:
        """Return address, version, and the id that a table keeps until it is created again."""
        return {"delta": self.address, "version": self._table.version(), "id": str(self._table.metadata().id)}

    def batches(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Return the schema and the rows, by commit and name of the file."""
        physical, types = {}, {}
        for field in json.loads(self._table.schema().to_json())["fields"]:
            kind = column_type(_type_name(field["type"]))
            if kind is not None:
                types[field["name"]] = kind
                physical[field["name"]] = field["metadata"].get("delta.columnMapping.physicalName", field["name"])
        schema = pa.schema(list(types.items()))
        return schema, self._rows(schema, physical)

    def _rows(self, schema: pa.Schema, physical: dict[str, str]) -> Iterator[pa.RecordBatch]:
        from deltalake.fs import DeltaStorageHandler

        table = self._table
        store = pa_fs.PyFileSystem(
            DeltaStorageHandler.from_table(table._table, None, table._table.get_add_file_sizes())
        )
        files = [
            {**action, "uri": uri}
            for action, uri in zip(pa.table(table.get_add_actions()).to_pylist(), table.file_uris(), strict=True)
        ]
        deleted = pa.RecordBatchReader._import_from_c_capsule(table.deletion_vectors().__arrow_c_stream__()).read_all()
        keep = dict(zip(deleted["filepath"].to_pylist(), range(deleted.num_rows), strict=True))
        masks = deleted["selection_vector"]
        for file in sorted(files, key=lambda file: (file["modification_time"], file["path"])):
            partition = file.get("partition") or {}
            constants = {name: partition.get(name, partition.get(physical[name])) for name in schema.names}
            mask = masks[keep[file["uri"]]].values if file["uri"] in keep else None
            with store.open_input_file(file["path"]) as source, open_parquet(source) as opened:
                yield from rows_of(opened, schema, stored=physical, constants=constants, keep=mask)


def _type_name(kind: Any) -> str:
    if isinstance(kind, dict) and kind["type"] == "array":
        return f"list<{_type_name(kind['elementType'])}>"
    return kind if isinstance(kind, str) else str(kind["type"])
