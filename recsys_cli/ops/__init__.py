"""Ops: frozen, engine-neutral descriptions of preparation steps; each class docstring is the op's reference.

A new op is a module here, an entry below and an entry in the table of each engine.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, SerializeAsAny, WrapValidator

from recsys_cli.ops.add_tags import AddTags
from recsys_cli.ops.bucketize import Bucketize
from recsys_cli.ops.categorify import Categorify
from recsys_cli.ops.clip import Clip
from recsys_cli.ops.deduplicate import Deduplicate
from recsys_cli.ops.difference_lag import DifferenceLag
from recsys_cli.ops.drop_low_cardinality import DropLowCardinality
from recsys_cli.ops.dropna import Dropna
from recsys_cli.ops.fill_median import FillMedian
from recsys_cli.ops.fill_missing import FillMissing
from recsys_cli.ops.filter import Filter
from recsys_cli.ops.foreign import ForeignOp, read_op
from recsys_cli.ops.groupby import Groupby
from recsys_cli.ops.hash_bucket import HashBucket
from recsys_cli.ops.hashed_cross import HashedCross
from recsys_cli.ops.join_external import JoinExternal
from recsys_cli.ops.join_groupby import JoinGroupby
from recsys_cli.ops.k_core import KCore
from recsys_cli.ops.lambda_op import LambdaOp
from recsys_cli.ops.list_slice import ListSlice
from recsys_cli.ops.log_op import LogOp
from recsys_cli.ops.negative_sampling import NegativeSampling
from recsys_cli.ops.normalize import Normalize
from recsys_cli.ops.normalize_min_max import NormalizeMinMax
from recsys_cli.ops.reduce_dtype_size import ReduceDtypeSize
from recsys_cli.ops.rename import Rename
from recsys_cli.ops.target_encoding import TargetEncoding
from recsys_cli.ops.time_window import TimeWindow
from recsys_cli.ops.value_count import ValueCount

AnyOp = Annotated[
    AddTags | Bucketize | Categorify | Clip | Deduplicate | DifferenceLag | DropLowCardinality | Dropna | FillMedian
    | FillMissing | Filter | Groupby | HashBucket | HashedCross | JoinExternal | JoinGroupby | KCore | LambdaOp
    | ListSlice | LogOp | NegativeSampling | Normalize | NormalizeMinMax | ReduceDtypeSize | Rename | TargetEncoding
    | TimeWindow | ValueCount,
    Field(discriminator="op"), SerializeAsAny(), WrapValidator(read_op),
]  # fmt: skip

__all__ = [
    "AddTags", "AnyOp", "Bucketize", "Categorify", "Clip", "Deduplicate", "DifferenceLag", "DropLowCardinality",
    "Dropna", "FillMedian", "FillMissing", "Filter", "ForeignOp", "Groupby", "HashBucket", "HashedCross",
    "JoinExternal", "JoinGroupby", "KCore", "LambdaOp", "ListSlice", "LogOp", "NegativeSampling", "Normalize",
    "NormalizeMinMax", "ReduceDtypeSize", "Rename", "TargetEncoding", "TimeWindow", "ValueCount",
]  # fmt: skip
