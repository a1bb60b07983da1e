"""Filling of nulls by NVTabular, the only workflows with nulls in their input."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from recsys_cli.etl.nvtabular_engine.frames import nvtabular, quiet, schema, to_arrow, to_frame
from recsys_cli.etl.nvtabular_engine.numeric import Numbers, groups, numbers
from recsys_cli.etl.nvtabular_engine.plain import set_column
from recsys_cli.ops.filling import FILLED


def filled(
    rows: pa.Table, types: Mapping[str, pa.DataType], make: Callable[[Mapping[str, str]], Any], *, indicators: bool
) -> pa.Table:
    """Fill columns by a workflow of one op; `indicators` adds its flags of filled values.

    `types` are those of the calculation; `make` creates the op from column name in the workflow → in the rows.
    """
    columns = {name: numbers(rows.column(name), kind) for name, kind in types.items()}
    for group in groups(columns):
        positions = {f"c{position}": name for position, name in enumerate(group)}
        made = _run(make, {position: columns[name] for position, name in positions.items()}, positions)
        for position, name in positions.items():
            values = made[position].cast(types[name]) if made else pa.array([], types[name])
            rows = set_column(rows, name, columns[name].shaped(values))
            if indicators:
                flags = made[position + FILLED].cast(pa.int8()) if made else pa.array([], pa.int8())
                rows = set_column(rows, name + FILLED, columns[name].shaped(flags))
    return rows


def _run(
    make: Callable[[Mapping[str, str]], Any], columns: Mapping[str, Numbers], positions: Mapping[str, str]
) -> dict[str, pa.Array]:
    """Return the columns of the workflow; none for empty input, an error in NVTabular."""
    if not any(len(column.values) for column in columns.values()):
        return {}
    with quiet():
        frame = to_frame({position: column.values for position, column in columns.items()})
        nulls = to_frame({position: pa.array(column.nulls) for position, column in columns.items()})
        for position in positions:
            if frame[position].dtype.kind != "f":
                # By default pandas converts integers with nulls to floats.
                frame[position] = frame[position].astype({"i": "Int64", "u": "UInt64"}[frame[position].dtype.kind])
            frame[position] = frame[position].mask(nulls[position])
        workflow = nvtabular().Workflow(list(positions) >> make(positions)).fit_schema(schema(frame))
        made = to_arrow(workflow.transform(frame))
    return {name: made.column(name).combine_chunks() for name in made.column_names}
