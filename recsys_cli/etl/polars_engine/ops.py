"""Modules of the ops on Polars, imported on demand."""

from __future__ import annotations

from recsys_cli import ops
from recsys_cli.ops.steps import Gather, Locate

MODULES: dict[type, str] = {
    ops.Bucketize: "recsys_cli.etl.polars_engine.bucketize",
    ops.Categorify: "recsys_cli.etl.polars_engine.categorify",
    ops.Clip: "recsys_cli.etl.polars_engine.clip",
    ops.FillMedian: "recsys_cli.etl.polars_engine.fill_median",
    ops.FillMissing: "recsys_cli.etl.polars_engine.fill_missing",
    ops.HashBucket: "recsys_cli.etl.polars_engine.hash_bucket",
    ops.HashedCross: "recsys_cli.etl.polars_engine.hashed_cross",
    ops.JoinExternal: "recsys_cli.etl.polars_engine.join_external",
    ops.JoinGroupby: "recsys_cli.etl.polars_engine.join_groupby",
    ops.LambdaOp: "recsys_cli.etl.polars_engine.lambda_op",
    ops.ListSlice: "recsys_cli.etl.polars_engine.list_slice",
    ops.LogOp: "recsys_cli.etl.polars_engine.log_op",
    ops.Normalize: "recsys_cli.etl.polars_engine.normalize",
    ops.NormalizeMinMax: "recsys_cli.etl.polars_engine.normalize_min_max",
    ops.ReduceDtypeSize: "recsys_cli.etl.polars_engine.reduce_dtype_size",
    ops.Rename: "recsys_cli.etl.polars_engine.rename",
    ops.TargetEncoding: "recsys_cli.etl.polars_engine.target_encoding",
    ops.ValueCount: "recsys_cli.etl.polars_engine.value_count",
    Gather: "recsys_cli.etl.polars_engine.gather",
    Locate: "recsys_cli.etl.polars_engine.locate",
}
