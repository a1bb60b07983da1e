"""The module of each op of phase "rows", imported on demand."""

from __future__ import annotations

from recsys_cli import ops

MODULES: dict[type, str] = {
    ops.Deduplicate: "recsys_cli.etl.filters.deduplicate",
    ops.DifferenceLag: "recsys_cli.etl.filters.difference_lag",
    ops.Dropna: "recsys_cli.etl.filters.dropna",
    ops.Filter: "recsys_cli.etl.filters.filter",
    ops.Groupby: "recsys_cli.etl.filters.groupby",
    ops.KCore: "recsys_cli.etl.filters.k_core",
    ops.TimeWindow: "recsys_cli.etl.filters.time_window",
}
