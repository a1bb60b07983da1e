"""Filling nulls by NVTabular: the one thing that has to see them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from recsys_cli.etl.nvtabular_engine.frames import nvtabular, quiet, schema, to_arrow, to_frame
from recsys_cli.etl.nvtabular_engine.numeric import Numbers, groups, numbers, put
from recsys_cli.features.ops.filling import FILLED


def filled(
    rows: pa.Table, types: Mapping[str, pa.DataType], make: Callable[[Mapping[str, str]], Any], *, indicators: bool
) -> pa.Table:
    """Return rows with columns filled by a workflow of one op.

    Args:
        rows: Where they are.
        types: The type that each is calculated with.
        make: Makes the op, given the names of its columns inside the workflow and outside.
        indicators: Whether the op says where it filled, and that is wanted.
    """
    found = {name: numbers(rows.column(name), kind) for name, kind in types.items()}
    for group in groups(found):
        places = {f"c{place}": name for place, name in enumerate(group)}
        made = _run(make, {place: found[name] for place, name in places.items()}, places)
        for place, name in places.items():
            values = made[place].cast(types[name]) if made else pa.array([], types[name])
            rows = put(rows, name, found[name].shaped(values))
            if indicators:
                flags = made[place + FILLED].cast(pa.int8()) if made else pa.array([], pa.int8())
                rows = put(rows, name + FILLED, found[name].shaped(flags))
    return rows


def _run(
    make: Callable[[Mapping[str, str]], Any], columns: Mapping[str, Numbers], places: Mapping[str, str]
) -> dict[str, pa.Array]:
    """Return the columns of the workflow; nothing for no values, on which NVTabular stops."""
    if not any(len(column.values) for column in columns.values()):
        return {}
    with quiet():
        frame = to_frame({place: column.values for place, column in columns.items()})
        nulls = to_frame({place: pa.array(column.nulls) for place, column in columns.items()})
        for place in places:
            if frame[place].dtype.kind != "f":
                # Else pandas makes floats of whole numbers with a null among them.
                frame[place] = frame[place].astype({"i": "Int64", "u": "UInt64"}[frame[place].dtype.kind])
            frame[place] = frame[place].mask(nulls[place])
        workflow = nvtabular().Workflow(list(places) >> make(places)).fit_schema(schema(frame))
        made = to_arrow(workflow.transform(frame))
    return {name: made.column(name).combine_chunks() for name in made.column_names}
