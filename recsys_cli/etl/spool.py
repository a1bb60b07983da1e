"""Rows kept in a scratch file on their way: what is read more than once is parsed once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from recsys_cli.etl.staging import Rows


class Spool:
    """Rows in a scratch file, in the batches in which they came."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path = path
        self._schema = schema

    @classmethod
    def write(cls, rows: Rows, path: Path) -> Spool:
        """Write rows to a file."""
        schema = rows.schema()
        with pa.ipc.new_file(str(path), schema) as file:
            for batch in rows.batches():
                file.write_table(batch.cast(schema))
        return cls(path, schema)

    def schema(self) -> pa.Schema:
        """Return the names and types that batches have."""
        return self._schema

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield the rows, or some of their columns."""
        names = self._schema.names if columns is None else list(columns)
        fields = sorted(self._schema.get_field_index(name) for name in names)
        with pa.OSFile(str(self.path)) as source:
            file = pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(included_fields=fields))
            for number in range(file.num_record_batches):
                yield pa.Table.from_batches([file.get_batch(number)]).select(names)

    def delete(self) -> None:
        """Delete the file: nobody will read it any more."""
        self.path.unlink(missing_ok=True)
