"""Ops: preparation steps with all their forms; each class docstring is the op's reference.

A new op is a module and an import below, which adds it to the table `OPS`.
"""

# ruff: noqa: F401

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field, SerializeAsAny, WrapValidator

from recsys_cli.ops.add_tags import AddTags
from recsys_cli.ops.bucketize import Bucketize
from recsys_cli.ops.categorify import Categorify
from recsys_cli.ops.clip import Clip
from recsys_cli.ops.deduplicate import Deduplicate
from recsys_cli.ops.difference_lag import DifferenceLag
from recsys_cli.ops.drop_low_cardinality import DropLowCardinality
from recsys_cli.ops.dropna import Dropna
from recsys_cli.ops.fill_missing import FillMedian, FillMissing
from recsys_cli.ops.foreign import read_op
from recsys_cli.ops.groupby import Groupby
from recsys_cli.ops.hash_bucket import HashBucket, HashedCross
from recsys_cli.ops.join_external import JoinExternal
from recsys_cli.ops.join_groupby import JoinGroupby
from recsys_cli.ops.k_core import KCore
from recsys_cli.ops.lambda_op import Filter, LambdaOp
from recsys_cli.ops.list_slice import ListSlice
from recsys_cli.ops.log_op import LogOp
from recsys_cli.ops.negative_sampling import NegativeSampling
from recsys_cli.ops.normalize import Normalize, NormalizeMinMax
from recsys_cli.ops.op import Op
from recsys_cli.ops.reduce_dtype_size import ReduceDtypeSize
from recsys_cli.ops.rename import Rename
from recsys_cli.ops.target_encoding import TargetEncoding
from recsys_cli.ops.time_window import TimeWindow
from recsys_cli.ops.value_count import ValueCount

OPS: dict[str, type[Op]] = {
    name: kind
    for name, kind in sorted(globals().items())
    if isinstance(kind, type) and issubclass(kind, Op) and kind is not Op
}
"""The ops by name."""

if TYPE_CHECKING:
    AnyOp = Op
else:
    AnyOp = Annotated[
        Union[tuple(OPS.values())], Field(discriminator="op"), SerializeAsAny(), WrapValidator(read_op)  # noqa: UP007
    ]
