"""JoinGroupby on NVTabular: two-pass moments by group (sums, then squared deviations), joined to the rows.

NVTabular's own variance uses a sum of squares, inaccurate for large values. It also counts the first key column and so
drops rows with a null there; null flags avoid that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.etl.nvtabular_engine.frames import nvtabular, quiet
from recsys_cli.etl.nvtabular_engine.grouping import Keys, grouped, join_by_key, replaced
from recsys_cli.etl.nvtabular_engine.plain import Plain, elements, plain
from recsys_cli.ops import JoinGroupby
from recsys_cli.ops.grouping import name_of

Floats = npt.NDArray[np.float64]


def learn(op: JoinGroupby, rows: pa.Table, folder: Path) -> dict[str, pa.Table]:
    """Compute `rows` by key, and per column `num0`, `sum0`, `mean0`, `square0`, `min0`, `max0`."""
    values = [plain(elements(rows.column(name))[0], name) for name in op.cont_cols]
    partials = {}
    for position, group in enumerate(op.columns):
        keys = Keys.of(group, rows)
        partials[name_of(group)] = _moments(keys, values, folder / str(position))
    return partials


def apply(op: JoinGroupby, state: Mapping[str, pa.Table], rows: pa.Table, folder: Path) -> pa.Table:  # noqa: ARG001 - no files
    """Add the statistics of each row's group."""
    added: dict[str, pa.Array] = {}
    for group in op.columns:
        names = op.written(group)
        statistics = join_by_key(Keys.of(group, rows), state[name_of(group)], list(names))
        if "count" in statistics:
            statistics["count"] = statistics["count"].fill_null(0).cast(pa.int64())
        added |= {name: statistics[stat] for stat, name in names.items()}
    return replaced(rows, added)


def _moments(keys: Keys, values: Sequence[Plain], folder: Path) -> pa.Table:
    rows = len(keys.columns["k0"])
    valid = [pa.array(np.ones(rows, dtype=bool) if value.nulls is None else ~value.nulls) for value in values]
    numbers = [pc.if_else(k, v.values.cast(pa.float64(), safe=False), None) for v, k in zip(values, valid, strict=True)]
    columns = {f"x{at}": number for at, number in enumerate(numbers)}
    columns |= {f"c{at}": flags.cast(pa.float64()) for at, flags in enumerate(valid)}
    first = _statistics(
        keys, columns or {"c": pa.array(np.ones(rows))}, ["count", "sum", "min", "max"], folder / "values"
    )
    table = {**keys.restore(first), "rows": first.column("count").cast(pa.int64())}
    with np.errstate(invalid="ignore", divide="ignore"):
        for at in range(len(values)):
            table[f"mean{at}"] = pa.array(_floats(first, f"x{at}_sum") / _floats(first, f"c{at}_sum"), from_pandas=True)
        means = join_by_key(keys, pa.table(table), [f"mean{at}" for at in range(len(values))])
        differences = [pc.subtract(number, means[f"mean{at}"]) for at, number in enumerate(numbers)]
        squares = {f"d{at}": difference for at, difference in enumerate(differences)}
        squares |= {f"q{at}": pc.multiply(difference, difference) for at, difference in enumerate(differences)}
        second = _in_order(keys, first, _statistics(keys, squares, ["sum"], folder / "differences")) if values else {}
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


def _statistics(keys: Keys, columns: Mapping[str, pa.Array], stats: Sequence[str], folder: Path) -> pa.Table:
    """Return the statistics `count` and `<column>_<statistic>`."""
    outputs = ["count"] if "count" in stats else []
    outputs += [f"{name}_{stat}" for name in columns for stat in stats if stat != "count"]
    with quiet():
        op = nvtabular().ops.JoinGroupby(cont_cols=list(columns), stats=list(stats), out_path=str(folder))
    return grouped(op, "categories", keys, columns, {name: name for name in outputs})


def _in_order(keys: Keys, first: pa.Table, second: pa.Table) -> dict[str, pa.Array]:
    """Return the second statistics in the group order of the first."""
    ordered = Keys(keys.types, keys.names, {name: first.column(name).combine_chunks() for name in keys.columns})
    statistics = {name: second.column(name) for name in second.column_names if name not in keys.columns}
    return join_by_key(ordered, pa.table({**keys.restore(second), **statistics}), list(statistics))


def _floats(table: pa.Table, name: str) -> Floats:
    """Return a column as an array with NaN for null."""
    return table.column(name).fill_null(float("nan")).to_numpy()
