"""JoinGroupby on NVTabular: it counts, adds up and finds limits by group, twice, so that variances keep their digits.

Its own variance is taken from a sum of squares, which for large values is noise; and it counts the first column of a group, so
that rows with a null there are none. So flags stand for nulls, and the second time it adds up differences to the group's mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from recsys_cli.etl.nvtabular_engine.frames import nvtabular, quiet, schema, to_frame
from recsys_cli.etl.nvtabular_engine.grouping import Keys, bring, replaced
from recsys_cli.etl.nvtabular_engine.plain import Plain, elements, plain
from recsys_cli.features.ops import JoinGroupby
from recsys_cli.features.ops.grouping import name_of

Floats = npt.NDArray[np.float64]


def learn(op: JoinGroupby, rows: pa.Table, folder: Path) -> dict[str, pa.Table]:
    """Describe the columns by key: `rows`, and of each column `num0`, `sum0`, `mean0`, `square0`, `min0`, `max0`."""
    values = [plain(elements(rows.column(name))[0], name) for name in op.cont_cols]
    found = {}
    for position, group in enumerate(op.columns):
        keys = Keys.of(group, rows)
        found[name_of(group)] = _moments(keys, values, folder / str(position))
    return found


def apply(op: JoinGroupby, state: Mapping[str, pa.Table], rows: pa.Table, folder: Path) -> pa.Table:  # noqa: ARG001 - it writes nothing
    """Add what is known of each row's group."""
    added: dict[str, pa.Array] = {}
    for group in op.columns:
        names = op.written(group)
        brought = bring(Keys.of(group, rows), state[name_of(group)], list(names))
        if "count" in brought:
            brought["count"] = brought["count"].fill_null(0).cast(pa.int64())
        added |= {name: brought[stat] for stat, name in names.items()}
    return replaced(rows, added)


def _moments(keys: Keys, values: Sequence[Plain], folder: Path) -> pa.Table:
    rows = len(keys.columns["k0"])
    known = [pa.array(np.ones(rows, dtype=bool) if value.nulls is None else ~value.nulls) for value in values]
    numbers = [pc.if_else(k, v.values.cast(pa.float64(), safe=False), None) for v, k in zip(values, known, strict=True)]
    columns = {f"x{at}": number for at, number in enumerate(numbers)}
    columns |= {f"c{at}": flags.cast(pa.float64()) for at, flags in enumerate(known)}
    first = _described(
        keys, columns or {"c": pa.array(np.ones(rows))}, ["count", "sum", "min", "max"], folder / "values"
    )
    table = {**keys.back(first), "rows": first.column("count").cast(pa.int64())}
    with np.errstate(invalid="ignore", divide="ignore"):
        for at in range(len(values)):
            table[f"mean{at}"] = pa.array(_floats(first, f"x{at}_sum") / _floats(first, f"c{at}_sum"), from_pandas=True)
        means = bring(keys, pa.table(table), [f"mean{at}" for at in range(len(values))])
        differences = [pc.subtract(number, means[f"mean{at}"]) for at, number in enumerate(numbers)]
        squares = {f"d{at}": difference for at, difference in enumerate(differences)}
        squares |= {f"q{at}": pc.multiply(difference, difference) for at, difference in enumerate(differences)}
        second = _in_order(keys, first, _described(keys, squares, ["sum"], folder / "differences")) if values else {}
        for at in range(len(values)):
            table |= _moments_of(at, first, second, _floats(pa.table(table), f"mean{at}"))
    return pa.table(table)


def _moments_of(at: int, first: pa.Table, second: Mapping[str, pa.Array], means: Floats) -> dict[str, pa.Array]:
    number, difference = _floats(first, f"c{at}_sum"), _floats(pa.table(second), f"d{at}_sum")
    rest = difference / number
    square = np.maximum(_floats(pa.table(second), f"q{at}_sum") - difference * rest, 0)
    return {
        f"num{at}": pa.array(number.astype(np.int64)),
        f"sum{at}": first.column(f"x{at}_sum").fill_null(0.0),
        f"mean{at}": pa.array(np.where(np.isfinite(rest), means + rest, means), from_pandas=True),
        f"square{at}": pa.array(np.where(number > 1, square, 0.0)),
        f"min{at}": first.column(f"x{at}_min"),
        f"max{at}": first.column(f"x{at}_max"),
    }


def _described(keys: Keys, columns: Mapping[str, pa.Array], stats: Sequence[str], folder: Path) -> pa.Table:
    """Fit a JoinGroupby op and return what it found: `count`, and `<column>_<statistic>`."""
    names = list(keys.columns)
    wanted = [f"{name}_{stat}" for name in columns for stat in stats if stat != "count"]
    wanted = ["count", *wanted] if "count" in stats else wanted
    if len(keys.columns[names[0]]) == 0:
        return pa.table({**keys.columns, **{name: pa.array([], pa.float64()) for name in wanted}})
    library = nvtabular()
    with quiet():
        op = library.ops.JoinGroupby(cont_cols=list(columns), stats=list(stats), out_path=str(folder))
        frame = to_frame({**keys.columns, **columns})
        groups = library.ColumnSelector(subgroups=[library.ColumnSelector(names)])
        library.Workflow(groups >> op).fit(library.Dataset(frame, schema=schema(frame)))
        (path,) = op.categories.values()
    found = pq.read_table(path)
    return pa.table(
        {name: found.column(name) for name in names}
        | {name: found.column(f"{'_'.join(names)}_{name}") for name in wanted}
    )


def _in_order(keys: Keys, first: pa.Table, second: pa.Table) -> dict[str, pa.Array]:
    """Return the second table's statistics in the order of the first: groups are in none that one may rely on."""
    wanted = Keys(keys.types, keys.names, {name: first.column(name).combine_chunks() for name in keys.columns})
    found = {name: second.column(name) for name in second.column_names if name not in keys.columns}
    return bring(wanted, pa.table({**keys.back(second), **found}), list(found))


def _floats(table: pa.Table, name: str) -> Floats:
    """Return a column as an array with NaN for null."""
    return table.column(name).fill_null(float("nan")).to_numpy()
